"""The CPU backend: a plan as LLVM IR, compiled and run by threads."""
