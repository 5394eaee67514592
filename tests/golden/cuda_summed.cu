extern "C" __global__ void count_step(int* step) {
  wait_for_others();
  let_others_start();
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
      for (int r = g; r < 40; r += 16) {
        const float v1 = p0[i + r * 24];
        total0[0] += v1;
      }
    }
    double* lane0 = (double*)(shared_bytes + 0);
#pragma unroll
    for (int lane = 0; lane < 1; lane++) lane0[lane * THREADS + g * 16 + x] = total0[lane];
    BARRIER;
#pragma unroll
    for (int half = 8; half > 0; half /= 2) {
      if (g < half) {
#pragma unroll
        for (int lane = 0; lane < 1; lane++) { total0[lane] += lane0[lane * THREADS + (g + half) * 16 + x]; lane0[lane * THREADS + g * 16 + x] = total0[lane]; }
      }
      BARRIER;
    }
    if (g == 0 && i < 24) {
      float out2[1];
#pragma unroll
      for (int lane = 0; lane < 1; lane++) out2[lane] = (float)(total0[lane]);
      p1[i] = out2[0];
    }
  }
}

extern "C" __global__ void __launch_bounds__(256) KERNEL(float* a0, float* a1) {
  wait_for_others();
  let_others_start();
  {
    KERNEL_body0(BLOCK, 2, a0, a1);
  }
}

DEVICE void KERNEL_body0(int block, int blocks, float* RESTRICT p0, float* RESTRICT p1, int* RESTRICT p2) {
  float* p1_now = p1 + (long long)*p2 * 24;
#pragma unroll 4
  for (int i = (int)block * THREADS + THREAD; i < 24; i += blocks * THREADS) {
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
      for (int r = g; r < 40; r += 16) {
        const float v1 = p0[i + r * 24];
        total0[0] += v1;
      }
    }
    double* lane0 = (double*)(shared_bytes + 0);
#pragma unroll
    for (int lane = 0; lane < 1; lane++) lane0[lane * THREADS + g * 16 + x] = total0[lane];
    BARRIER;
#pragma unroll
    for (int half = 8; half > 0; half /= 2) {
      if (g < half) {
#pragma unroll
        for (int lane = 0; lane < 1; lane++) { total0[lane] += lane0[lane * THREADS + (g + half) * 16 + x]; lane0[lane * THREADS + g * 16 + x] = total0[lane]; }
      }
      BARRIER;
    }
    if (g == 0 && i < 24) {
      float out2[1];
#pragma unroll
      for (int lane = 0; lane < 1; lane++) out2[lane] = (float)(total0[lane]);
      p1[i] = out2[0];
    }
  }
}

extern "C" __global__ void __launch_bounds__(256) KERNEL(float* a0, float* a1, int* a2, float* a3, float* a4) {
  wait_for_others();
  let_others_start();
  if (BLOCK < 1) {
    KERNEL_body0(BLOCK, 1, a0, a1, a2);
  } else
  {
    KERNEL_body1(BLOCK - 1, 2, a3, a4);
  }
}

DEVICE void KERNEL_body0(int block, int blocks, float* RESTRICT p0, float* RESTRICT p1, int* RESTRICT p2) {
  float* p1_now = p1 + (long long)*p2 * 24;
#pragma unroll 4
  for (int i = (int)block * THREADS + THREAD; i < 24; i += blocks * THREADS) {
    const float v1 = p0[i];
    p1_now[i] = v1;
  }
}

extern "C" __global__ void __launch_bounds__(256) KERNEL(float* a0, float* a1, int* a2) {
  wait_for_others();
  let_others_start();
  {
    KERNEL_body0(BLOCK, 1, a0, a1, a2);
  }
}
