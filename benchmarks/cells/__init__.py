"""What is measured: one module for each library, all with the same workloads."""
