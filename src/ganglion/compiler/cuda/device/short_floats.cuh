#include "common.cuh"

// ---- floats of 16 bits -------------------------------------------------------------
// They are stored, not computed with. Their bits are rounded by whole numbers, so that
// every GPU does the same; halves round to even.

struct float16 {
  unsigned short bits;
  METHOD operator float() const {
    const unsigned size = ((unsigned)bits & 0x7fffu) << 13;
    const float scaled = float_of_bits(size) * 0x1p112f;
    const unsigned end = size >= 0x0f800000u ? 0x7f800000u : 0u;  // infinite or NaN
    return float_of_bits(bits_of_float(scaled) | end | ((unsigned)bits & 0x8000u) << 16);
  }
};
DEVICE float16 as_float16(float x) {
  const unsigned bits = bits_of_float(x), size = bits & 0x7fffffffu;
  // Added to a half, the last bit of a small number is the last bit of a float16.
  const unsigned small = bits_of_float(float_of_bits(size) + 0.5f) - 0x3f000000u;
  const unsigned normal = (size - 0x38000000u + 0xfffu + (size >> 13 & 1u)) >> 13;
  unsigned near = size < 0x38800000u ? small : normal;
  near = size >= 0x477ff000u ? 0x7c00u : near;
  near = size > 0x7f800000u ? 0x7e00u : near;
  return {(unsigned short)(near | (bits >> 16 & 0x8000u))};
}

struct bfloat16 {
  unsigned short bits;
  METHOD operator float() const { return float_of_bits((unsigned)bits << 16); }
};
DEVICE bfloat16 as_bfloat16(float x) {
  const unsigned bits = bits_of_float(x);
  unsigned near = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  near = (bits & 0x7fffffffu) > 0x7f800000u ? bits >> 16 | 0x40u : near;
  return {(unsigned short)near};
}
