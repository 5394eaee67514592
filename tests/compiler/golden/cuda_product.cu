extern "C" __global__ void count_step(int* step) {
  start_after_others();
  if (THREAD == 0) *step += 1;
}

DEVICE void KERNEL_body0(int block, int blocks, float* RESTRICT p0, float* RESTRICT p1, float* RESTRICT p2) {
  const int x = THREAD / 4, g = THREAD % 4;
  for (int tile = block; tile < 12; tile += blocks) {
    const int i = tile / 1 * 64 + x;
    double total0[1];
#pragma unroll
    for (int lane = 0; lane < 1; lane++) total0[lane] = 0;
    if (i < 768) {
      const int i1 = (i / 16);
      const int i2 = (i % 16);
#pragma unroll 4
      for (int turn = 0; turn < 2; turn++) {
        const int r0 = g + turn * 16;
        float run3[1] = {};
#pragma unroll
        for (int u = 0; u < 4; u++) {
          const int r = r0 + u * 4;
          if (r < 20) {
            const float v4 = p0[i2 + r * 16];
            const float v5 = p1[i1 * 20 + r];
            const float v6 = v5 * v4;
            run3[0] += v6;
          }
        }
#pragma unroll
        for (int lane = 0; lane < 1; lane++) total0[lane] += run3[lane];
      }
    }
#pragma unroll
    for (int away = 2; away >= 1; away /= 2) {
#pragma unroll
      for (int lane = 0; lane < 1; lane++) { const double other = from_lane_above(total0[lane], away); total0[lane] += other; }
    }
    if (g == 0 && i < 768) {
      const int i7 = (i / 16);
      const int i8 = (i % 16);
      float out9[1];
#pragma unroll
      for (int lane = 0; lane < 1; lane++) out9[lane] = (float)(total0[lane]);
      p2[i7 * 16 + i8] = out9[0];
    }
  }
}

extern "C" __global__ void __launch_bounds__(256) KERNEL(float* a0, float* a1, float* a2) {
  {
    start_after_others();
    KERNEL_body0(BLOCK, 12, a0, a1, a2);
  }
}

DEVICE void KERNEL_body0(int block, int blocks, float* RESTRICT p0, float* RESTRICT p1, int* RESTRICT p2) {
  float* p1_now = p1 + (long long)*p2 * 768;
#pragma unroll 4
  for (int i = (int)block * THREADS + THREAD; i < 768; i += blocks * THREADS) {
    const float v1 = p0[i];
    const float v2 = larger(v1, 0x0.0p+0f);
    p1_now[i] = v2;
  }
}

DEVICE void KERNEL_body1(int block, int blocks, float* RESTRICT p0, float* RESTRICT p1, float* RESTRICT p2) {
  const int x = THREAD / 4, g = THREAD % 4;
  for (int tile = block; tile < 12; tile += blocks) {
    const int i = tile / 1 * 64 + x;
    double total0[1];
#pragma unroll
    for (int lane = 0; lane < 1; lane++) total0[lane] = 0;
    if (i < 768) {
      const int i1 = (i / 16);
      const int i2 = (i % 16);
#pragma unroll 4
      for (int turn = 0; turn < 2; turn++) {
        const int r0 = g + turn * 16;
        float run3[1] = {};
#pragma unroll
        for (int u = 0; u < 4; u++) {
          const int r = r0 + u * 4;
          if (r < 20) {
            const float v4 = p0[i2 + r * 16];
            const float v5 = p1[i1 * 20 + r];
            const float v6 = v5 * v4;
            run3[0] += v6;
          }
        }
#pragma unroll
        for (int lane = 0; lane < 1; lane++) total0[lane] += run3[lane];
      }
    }
#pragma unroll
    for (int away = 2; away >= 1; away /= 2) {
#pragma unroll
      for (int lane = 0; lane < 1; lane++) { const double other = from_lane_above(total0[lane], away); total0[lane] += other; }
    }
    if (g == 0 && i < 768) {
      const int i7 = (i / 16);
      const int i8 = (i % 16);
      float out9[1];
#pragma unroll
      for (int lane = 0; lane < 1; lane++) out9[lane] = (float)(total0[lane]);
      p2[i7 * 16 + i8] = out9[0];
    }
  }
}

extern "C" __global__ void __launch_bounds__(256) KERNEL(float* a0, float* a1, int* a2, float* a3, float* a4, float* a5) {
  if (BLOCK < 3) {
    start_after_others();
    KERNEL_body0(BLOCK, 3, a0, a1, a2);
  } else
  {
    start_after_others();
    KERNEL_body1(BLOCK - 3, 12, a3, a4, a5);
  }
}
