DEVICE void KERNEL_body0(int block, int blocks, float* RESTRICT p0, float* RESTRICT p1, float* RESTRICT p2, int* RESTRICT p3) {
  float* p2_now = p2 + (long long)*p3 * 768;
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
      for (int r = g; r < 20; r += 4) {
        const float v3 = p0[i2 + r * 16];
        const float v4 = p1[i1 * 20 + r];
        const float v5 = v4 * v3;
        total0[0] += v5;
      }
    }
    double* lane0 = (double*)(shared_bytes + 0);
#pragma unroll
    for (int lane = 0; lane < 1; lane++) lane0[lane * THREADS + g * 64 + x] = total0[lane];
    BARRIER;
#pragma unroll
    for (int half = 2; half > 0; half /= 2) {
      if (g < half) {
#pragma unroll
        for (int lane = 0; lane < 1; lane++) { total0[lane] += lane0[lane * THREADS + (g + half) * 64 + x]; lane0[lane * THREADS + g * 64 + x] = total0[lane]; }
      }
      BARRIER;
    }
    if (g == 0 && i < 768) {
      const int i6 = (i / 16);
      const int i7 = (i % 16);
      float out8[1];
#pragma unroll
      for (int lane = 0; lane < 1; lane++) out8[lane] = (float)(total0[lane]);
      const float v9 = larger(out8[0], 0x0.0p+0f);
      p2_now[i] = v9;
    }
  }
}

extern "C" __global__ void __launch_bounds__(256) KERNEL(float* a0, float* a1, float* a2, int* a3) {
  wait_for_others();
  let_others_start();
  {
    KERNEL_body0(BLOCK, 12, a0, a1, a2, a3);
  }
}

extern "C" __global__ void count_step(int* step) {
  wait_for_others();
  let_others_start();
  if (THREAD == 0) *step += 1;
}
