import com.espertech.esper.common.client.EPCompiled;
import com.espertech.esper.common.client.EventBean;
import com.espertech.esper.common.client.configuration.Configuration;
import com.espertech.esper.compiler.client.CompilerArguments;
import com.espertech.esper.compiler.client.EPCompilerProvider;
import com.espertech.esper.runtime.client.EPRuntime;
import com.espertech.esper.runtime.client.EPRuntimeProvider;
import com.espertech.esper.runtime.client.EPStatement;
import java.io.BufferedReader;
import java.nio.file.Files;
import java.nio.file.Path;

/** Looks for card testing in a file of payments with Esper, several times over; prints one line of JSON a pass. */
public final class CardTesting {
    private static final long FIRST_MS = 1_767_225_600_000L;

    private static final String QUERY = """
        select * from Payment match_recognize (
          partition by card
          measures F.at as startAt, L.at as endAt, count(S.at) + 2 as size, L.card as card
          after match skip past last row
          pattern (F S{2,} L)
          define F as F.amount < 2.0, S as S.amount < 2.0, L as L.amount > 500.0 and L.at - F.at <= 600000
        )""";

    private static long found;
    private static long sum;

    public static void main(String[] arguments) throws Exception {
        int passes = Integer.parseInt(arguments[1]);
        for (int pass = 0; pass < passes; pass++) {
            run(Path.of(arguments[0]), pass);
        }
    }

    private static void run(Path file, int pass) throws Exception {
        Configuration configuration = new Configuration();
        configuration.getCommon().addEventType("Payment",
            new String[] {"card", "amount", "at"}, new Object[] {int.class, double.class, long.class});
        configuration.getRuntime().getThreading().setInternalTimerEnabled(false);
        EPCompiled compiled = EPCompilerProvider.getCompiler().compile(QUERY, new CompilerArguments(configuration));
        EPRuntime runtime = EPRuntimeProvider.getRuntime("pass" + pass, configuration);
        EPStatement statement = runtime.getDeploymentService().deploy(compiled).getStatements()[0];
        statement.addListener((fresh, old, from, in) -> {
            for (EventBean each : fresh) {
                found++;
                sum += ((Integer) each.get("card")) * 31L + ((Long) each.get("startAt") - FIRST_MS) * 17L
                    + ((Long) each.get("endAt") - FIRST_MS) + ((Number) each.get("size")).longValue();
            }
        });
        found = sum = 0;
        long events = 0;
        long began = System.nanoTime();
        try (BufferedReader lines = Files.newBufferedReader(file)) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                int first = line.indexOf(',');
                int second = line.indexOf(',', first + 1);
                Object[] payment = {
                    Integer.parseInt(line, 0, first, 10),
                    Double.parseDouble(line.substring(first + 1, second)),
                    Long.parseLong(line, second + 1, line.length(), 10),
                };
                runtime.getEventService().sendEventObjectArray(payment, "Payment");
                events++;
            }
        }
        double seconds = (System.nanoTime() - began) / 1e9;
        System.out.printf("{\"rate\": %.1f, \"found\": %d, \"sum\": %d}%n", events / seconds, found, sum);
        runtime.destroy();
    }
}
