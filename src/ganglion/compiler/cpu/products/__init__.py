"""Contractions as LLVM IR, by the way that suits their sizes."""
