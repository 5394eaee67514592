"""The CUDA backend: a plan as CUDA C, compiled by NVRTC and replayed as a graph."""
