#!/bin/sh
# The Python that Spark starts. Before all else on the path Spark puts zip files of PySpark, and every process compiles
# what it imports from those anew: half a second for each of the ten that a query begins with. What is installed is the
# same, compiled once.
set -f
IFS=:
kept=
for entry in $PYTHONPATH; do
  case $entry in
    */pyspark.zip | */py4j-*-src.zip | */spark-core_*.jar) ;;
    *) kept=$kept:$entry ;;
  esac
done
# numpy starts a thread for each core when it is imported, and a task has one.
export OPENBLAS_NUM_THREADS="${OPENBLAS_NUM_THREADS:-1}"
# Not the directory that we are in: a file there may be called as a module of Python's is.
PYTHONPATH=${kept#:} exec "$HEADWATER_PYTHON" -P "$@"
