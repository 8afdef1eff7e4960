//! The objects of the benchmark.
