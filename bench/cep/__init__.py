"""One fraud pattern over card payments, in Headwater, in Esper and in Flink."""
