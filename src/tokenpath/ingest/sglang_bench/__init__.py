"""Results of SGLang's bench_serving."""
