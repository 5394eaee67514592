extern "C" __global__ void count_step(int* step) {
  start_after_others();
  if (THREAD == 0) *step += 1;
}

DEVICE void KERNEL_body0(int block, int blocks, float* RESTRICT p0, float* RESTRICT p1) {
  const int x = THREAD % 16, g = THREAD / 16;
  for (int tile = block; tile < 2; tile += blocks) {
    const int i = tile / 1 * 16 + x;
    double total0[1];
#pragma unroll
    for (int lane = 0; lane < 1; lane++) total0[lane] = 0;
    if (i < 24) {
#pragma unroll 4
      for (int turn = 0; turn < 1; turn++) {
        const int r0 = g + turn * 48;
        float run1[1] = {};
#pragma unroll
        for (int u = 0; u < 3; u++) {
          const int r = r0 + u * 16;
          if (r < 40) {
            const float v2 = p0[i + r * 24];
            run1[0] += v2;
          }
        }
#pragma unroll
        for (int lane = 0; lane < 1; lane++) total0[lane] += run1[lane];
      }
    }
#pragma unroll
    for (int away = 16; away >= 16; away /= 2) {
#pragma unroll
      for (int lane = 0; lane < 1; lane++) { const double other = from_lane_above(total0[lane], away); total0[lane] += other; }
    }
    double* group0 = (double*)(shared_bytes + 0);
    if (g % 2 == 0) {
#pragma unroll
      for (int lane = 0; lane < 1; lane++) group0[g / 2 * 16 + x + lane * 16] = total0[lane];
    }
    BARRIER;
    if (g == 0) {
#pragma unroll
      for (int other = 1; other < 8; other++) {
#pragma unroll
        for (int lane = 0; lane < 1; lane++) total0[lane] += group0[(other * 1 + lane) * 16 + x];
      }
    }
    BARRIER;
    if (g == 0 && i < 24) {
      float out3[1];
#pragma unroll
      for (int lane = 0; lane < 1; lane++) out3[lane] = (float)(total0[lane]);
      p1[i] = out3[0];
    }
  }
}

extern "C" __global__ void __launch_bounds__(256) KERNEL(float* a0, float* a1) {
  {
    start_after_others();
    KERNEL_body0(BLOCK, 2, a0, a1);
  }
}

DEVICE void KERNEL_body0(int block, int blocks, float* RESTRICT p0, float* RESTRICT p1, int* RESTRICT p2) {
  float* p1_now = p1 + (long long)*p2 * 24;
  if (int i = (int)block * THREADS + THREAD; i < 24) {
    const float v1 = p0[i];
    p1_now[i] = v1;
  }
}

DEVICE void KERNEL_body1(int block, int blocks, float* RESTRICT p0, float* RESTRICT p1) {
  const int x = THREAD % 16, g = THREAD / 16;
  for (int tile = block; tile < 2; tile += blocks) {
    const int i = tile / 1 * 16 + x;
    double total0[1];
#pragma unroll
    for (int lane = 0; lane < 1; lane++) total0[lane] = 0;
    if (i < 24) {
#pragma unroll 4
      for (int turn = 0; turn < 1; turn++) {
        const int r0 = g + turn * 48;
        float run1[1] = {};
#pragma unroll
        for (int u = 0; u < 3; u++) {
          const int r = r0 + u * 16;
          if (r < 40) {
            const float v2 = p0[i + r * 24];
            run1[0] += v2;
          }
        }
#pragma unroll
        for (int lane = 0; lane < 1; lane++) total0[lane] += run1[lane];
      }
    }
#pragma unroll
    for (int away = 16; away >= 16; away /= 2) {
#pragma unroll
      for (int lane = 0; lane < 1; lane++) { const double other = from_lane_above(total0[lane], away); total0[lane] += other; }
    }
    double* group0 = (double*)(shared_bytes + 0);
    if (g % 2 == 0) {
#pragma unroll
      for (int lane = 0; lane < 1; lane++) group0[g / 2 * 16 + x + lane * 16] = total0[lane];
    }
    BARRIER;
    if (g == 0) {
#pragma unroll
      for (int other = 1; other < 8; other++) {
#pragma unroll
        for (int lane = 0; lane < 1; lane++) total0[lane] += group0[(other * 1 + lane) * 16 + x];
      }
    }
    BARRIER;
    if (g == 0 && i < 24) {
      float out3[1];
#pragma unroll
      for (int lane = 0; lane < 1; lane++) out3[lane] = (float)(total0[lane]);
      p1[i] = out3[0];
    }
  }
}

extern "C" __global__ void __launch_bounds__(256) KERNEL(float* a0, float* a1, int* a2, float* a3, float* a4) {
  if (BLOCK < 1) {
    start_after_others();
    KERNEL_body0(BLOCK, 1, a0, a1, a2);
  } else
  {
    start_after_others();
    KERNEL_body1(BLOCK - 1, 2, a3, a4);
  }
}
