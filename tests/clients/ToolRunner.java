import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

import org.apache.kafka.common.utils.Exit;

/** Runs the tools that standard input asks for, one after the other, each as if it had this JVM to itself. */
public class ToolRunner {
    private static final class Ended extends Error {
    }

    private static final List<Runnable> hooks = new ArrayList<>();
    private static Integer status;

    public static void main(String[] unused) throws IOException {
        DataInputStream questions = new DataInputStream(System.in);
        PrintStream answers = System.out;
        Exit.setExitProcedure((code, message) -> end(code));
        Exit.setHaltProcedure((code, message) -> end(code));
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        while (true) {
            String[] words;
            try {
                words = new String[questions.readInt()];
            } catch (EOFException error) {
                return;
            }
            for (int i = 0; i < words.length; i++) {
                words[i] = new String(read(questions), StandardCharsets.UTF_8);
            }
            answer(answers, words, new ByteArrayInputStream(read(questions)));
        }
    }

    private static void answer(PrintStream answers, String[] words, InputStream given) throws IOException {
        ByteArrayOutputStream output = new ByteArrayOutputStream();
        ByteArrayOutputStream errors = new ByteArrayOutputStream();
        System.setIn(given);
        System.setOut(new PrintStream(output, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(errors, true, StandardCharsets.UTF_8));
        status = null;
        hooks.clear();
        run(words[0], Arrays.copyOfRange(words, 1, words.length));
        hooks.forEach(Runnable::run);
        DataOutputStream answer = new DataOutputStream(answers);
        answer.writeInt(status == null ? 0 : status);
        for (ByteArrayOutputStream each : List.of(output, errors)) {
            answer.writeInt(each.size());
            each.writeTo(answer);
        }
        answer.flush();
    }

    private static void run(String tool, String[] arguments) {
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException error) {
            if (!(error.getCause() instanceof Ended)) {
                fail(error.getCause());
            }
        } catch (ReflectiveOperationException error) {
            fail(error);
        }
    }

    private static void fail(Throwable error) {
        System.err.print("Exception in thread \"main\" ");
        error.printStackTrace();
        status = status == null ? 1 : status;
    }

    /** Takes the first status: a tool may catch what ends it here, and then end once more. */
    private static void end(int code) {
        status = status == null ? code : status;
        throw new Ended();
    }

    private static byte[] read(DataInputStream stream) throws IOException {
        byte[] read = new byte[stream.readInt()];
        stream.readFully(read);
        return read;
    }
}
