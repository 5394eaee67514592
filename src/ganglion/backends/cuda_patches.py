"""Convolutions by patches of images in CUDA C, beside what `cuda_tiles` has for all."""

from __future__ import annotations

WINDOWS = """\
// Convolutions whose windows overlap: a patch of the images is copied once, and its
// rows are read shifted for each place of the window; weights come step by step.
template <class S> struct Patch {
  static constexpr int LINE = S::CHANNELS + 4, WIDTH = S::ACROSS_X + S::KX - 1;
  static constexpr int HEIGHT = S::TILE_Y + S::KY - 1;
  static constexpr int PIXELS = S::TILE_IMAGES * HEIGHT * WIDTH;
  static constexpr int FLOATS = PIXELS * LINE;
  DEVICE void copy(float* to, const float* left, int tile_m) {
    constexpr int parts = S::CHANNELS / 4;
    const int image0 = tile_m / S::TILES_Y * S::TILE_IMAGES;
    const int y0 = tile_m % S::TILES_Y * S::TILE_Y;
#pragma unroll 4
    for (int e = THREAD; e < PIXELS * parts; e += THREADS) {
      const unsigned pixel = (unsigned)e / parts, part = (unsigned)e % parts;
      const int x = pixel % WIDTH, y = y0 + (int)(pixel / WIDTH % HEIGHT);
      const int image = image0 + (int)(pixel / (WIDTH * HEIGHT));
      copy_async<16, true>(
          to + pixel * LINE + part * 4,
          left + (typename S::Offset)image * S::IMAGE_STEP + y * S::Y_STEP +
              x * S::CHANNELS + part * 4,
          image < S::IMAGES && y < S::Y + S::KY - 1);
    }
  }
  // Where the window of a tile's row begins.
  DEVICE int window(int row) {
    if (row >= S::TILE_IMAGES * S::TILE_Y * S::ACROSS_X) return 0;
    const int x = row % S::ACROSS_X, y = row / S::ACROSS_X % S::TILE_Y;
    const int image = row / (S::ACROSS_X * S::TILE_Y);
    return ((image * HEIGHT + y) * WIDTH + x) * LINE;
  }
};

template <class S, int DOWN, int RIGHT>
DEVICE void multiply_windows(float (&c)[DOWN][RIGHT][4], const float* patch,
                             const int (&rows)[DOWN], const float* b, int n0, int k0,
                             int group) {
#pragma unroll
  for (int step = 0; step < S::BK / 8 / S::WK; step++) {
    const int within = (step * S::WK + group) * 8, k = k0 + within;
    const int tap = (unsigned)k / S::CHANNELS, channel = (unsigned)k % S::CHANNELS;
    const int place = (tap / S::KX * Patch<S>::WIDTH + tap % S::KX) * Patch<S>::LINE;
    // Beyond the last tap the weights are zero: any pixel will do.
    const float* at = patch + (k < S::K ? place + channel : 0);
    unsigned left[DOWN][4], right[RIGHT][2];
    right_parts<S>(right, b, n0, within);
#pragma unroll
    for (int i = 0; i < DOWN; i++) {
      float words[4];
      load_matrices(words, at + rows[i]);
#pragma unroll
      for (int h = 0; h < 4; h++) left[i][h] = operand<S::ROUND_LEFT>(words[h]);
    }
#pragma unroll
    for (int i = 0; i < DOWN; i++)
#pragma unroll
      for (int j = 0; j < RIGHT; j++) multiply_tf32(c[i][j], left[i], right[j]);
  }
}

template <class S, class Store>
DEVICE void contract_windows(int block, int blocks, const float* left,
                             const float* right, float* parts, unsigned* counters,
                             Store store) {
  constexpr int DOWN = S::BM / S::WM / 16, RIGHT = S::BN / S::WN / 8;
  constexpr int across = (S::N + S::BN - 1) / S::BN, STAGE = S::BK * (S::BN + 8);
  constexpr int steps = (S::K + S::BK - 1) / S::BK;
  float* patch = (float*)shared_bytes;
  float* stages = patch + Patch<S>::FLOATS;
  const int warp = THREAD / 32, lane = THREAD % 32, group = warp / (S::WM * S::WN);
  const int m_of_warp = warp % S::WM * (S::BM / S::WM);
  const int n_of_warp = warp / S::WM % S::WN * (S::BN / S::WN);
  int rows[DOWN];
#pragma unroll
  for (int i = 0; i < DOWN; i++)
    rows[i] = Patch<S>::window(m_of_warp + i * 16 + lane % 16) + lane / 16 * 4;
#pragma unroll 1
  for (int number = block; number < S::TILES; number += blocks) {
    const int tile_m = number / across, n0 = number % across * S::BN;
    RightCopies<S> rights;
    rights.begin(right, n0);
    auto fetch = [&](int step) {
      if (step < steps)
        rights.copy(stages + step % S::STAGES * STAGE, step * S::BK);
      commit_copies();
    };
    Patch<S>::copy(patch, left, tile_m);
    float c[DOWN][RIGHT][4] = {};
#pragma unroll 1
    for (int ahead = 0; ahead < S::STAGES - 1; ahead++) fetch(ahead);
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
      await_copies<S::STAGES - 2>();
      BARRIER;
      fetch(step + S::STAGES - 1);
      multiply_windows<S>(c, patch, rows, stages + step % S::STAGES * STAGE, n_of_warp,
                          step * S::BK, group);
    }
    await_copies<0>();
    BARRIER;
    float* sums = (float*)shared_bytes;
    lay_down<S>(sums + group * S::BM * (S::BN + 4), c, m_of_warp, n_of_warp);
    finish_tile<S>(sums, number, 0, 0, tile_m, n0, parts, counters, store);
    BARRIER;
  }
}
"""
