#include "conv_patch.cuh"
// Convolutions whose windows overlap: a patch of the images is copied once, and its
// rows are read shifted for each tap of the window. A block keeps its columns; their
// weights stay with it where there is room, else they come step by step.
template <class S> struct Patch {
  typedef typename S::Left Left;
  static constexpr int V = 16 / (int)sizeof(Left), LINE = S::CHANNELS + V;
  static constexpr int WIDTH = S::ACROSS_X + S::KX - 1;
  static constexpr int HEIGHT = S::TILE_Y + S::KY - 1;
  static constexpr int PIXELS = S::TILE_IMAGES * HEIGHT * WIDTH;
  static constexpr int SUMS = S::WK * S::BM * S::SUMS * 4;
  static constexpr int FULL = PIXELS * LINE * (int)sizeof(Left);
  // The sums of a tile lie where its patch was.
  static constexpr int BYTES = FULL > SUMS ? FULL : SUMS;
  DEVICE void copy(Left* to, const Left* left, int tile) {
    const int image0 = tile / S::TILES_Y * S::TILE_IMAGES;
    const int y0 = tile % S::TILES_Y * S::TILE_Y;
    copy_patch<S, S::CHANNELS, LINE, HEIGHT, WIDTH>(to, left, image0, y0, 0);
  }
  // Where the window of a tile's row begins.
  DEVICE int window_offset(int row) {
    if (row >= S::TILE_IMAGES * S::TILE_Y * S::ACROSS_X) return 0;
    const int x = row % S::ACROSS_X, y = row / S::ACROSS_X % S::TILE_Y;
    const int image = row / (S::ACROSS_X * S::TILE_Y);
    return ((image * HEIGHT + y) * WIDTH + x) * LINE;
  }
  // How far an inner index lies from there. Beyond the last tap the weights are zero:
  // any pixel will do.
  DEVICE int tap_offset(int k) {
    const int tap = (unsigned)k / S::CHANNELS, channel = (unsigned)k % S::CHANNELS;
    return k < S::K ? (tap / S::KX * WIDTH + tap % S::KX) * LINE + channel : 0;
  }
};

template <class S, int DOWN, int RIGHT>
DEVICE void multiply_fprop(float (&c)[DOWN][RIGHT][4], const typename S::Left* patch,
                             const int (&rows)[DOWN], const typename S::Right* b,
                             int n0, int k0, int group) {
  constexpr int KS = S::BF16 ? 16 : 8;
  const int half = THREAD % 32 / 16 * (KS / 2);  // of the inner indices: this lane's
  const int first = Patch<S>::tap_offset(k0);
#pragma unroll
  for (int step = 0; step < S::BK / KS / S::WK; step++) {
    const int within = (step * S::WK + group) * KS, k = k0 + within;
    // Both halves are channels of the same pixel, or each has its own.
    const int at = S::CHANNELS % S::BK == 0 ? first + within + half
                   : S::CHANNELS % KS == 0  ? Patch<S>::tap_offset(k) + half
                                            : Patch<S>::tap_offset(k + half);
    unsigned left[DOWN][4], right[RIGHT][2];
    right_parts<S>(right, b, n0, within);
#pragma unroll
    for (int i = 0; i < DOWN; i++) load_left<S>(left[i], patch + rows[i] + at);
#pragma unroll
    for (int i = 0; i < DOWN; i++)
#pragma unroll
      for (int j = 0; j < RIGHT; j++) multiply<S>(c[i][j], left[i], right[j]);
  }
}

template <class S, class Store>
DEVICE void conv_fprop(int block, int blocks, const typename S::Left* left,
                             const typename S::Right* right, float* parts,
                             unsigned* counters, Store store) {
  typedef typename S::Left Left;
  typedef typename S::Right Right;
  constexpr int DOWN = S::BM / S::WM / 16, RIGHT = S::BN / S::WN / 8;
  constexpr int across = (S::N + S::BN - 1) / S::BN;
  constexpr int steps = (S::K + S::BK - 1) / S::BK;
  constexpr int STAGE = S::BK * Stage<S>::RIGHT_LINE;
  constexpr bool STAY = S::STAGES >= steps;
  auto* patches = shared_bytes;
  Right* stages = (Right*)(patches + S::PATCHES * Patch<S>::BYTES);
  const int warp = THREAD / 32, lane = THREAD % 32, group = warp / (S::WM * S::WN);
  const int m_of_warp = warp % S::WM * (S::BM / S::WM);
  const int n_of_warp = warp / S::WM % S::WN * (S::BN / S::WN);
  // Where 8 warps do not share a tile evenly, some only copy.
  const bool works = 8 % (S::WM * S::WN) == 0 || group < S::WK;
  int rows[DOWN];
#pragma unroll
  for (int i = 0; i < DOWN; i++)
    rows[i] = Patch<S>::window_offset(m_of_warp + i * 16 + lane % 16);
  const int n0 = block % across * S::BN, stride = blocks / across;
  RightCopies<S> rights;
  rights.begin(right, n0);
  auto fetch = [&](int step) {
    if (step < steps) rights.copy(stages + step % S::STAGES * STAGE, step * S::BK);
  };
  auto fetch_patch = [&](int tile, int turn) {
    if (tile < S::TILES)
      Patch<S>::copy((Left*)(patches + turn % S::PATCHES * Patch<S>::BYTES), left,
                     tile);
  };
  constexpr int FIRST = STAY ? steps : S::STAGES - 1;  // steps that are fetched at once
  if (!S::PREFETCH_LEFT && S::PREFETCH_RIGHT) {
    // What has long been ready comes while the launch before this one ends.
#pragma unroll 1
    for (int step = 0; step < FIRST; step++) fetch(step);
    start_after_others();
  }
  fetch_patch(block / across, 0);
  if (S::PREFETCH_LEFT && !S::PREFETCH_RIGHT) start_after_others();
  if (S::PREFETCH_LEFT || !S::PREFETCH_RIGHT) {
#pragma unroll 1
    for (int step = 0; step < FIRST; step++) fetch(step);
  }
  if (S::PREFETCH_LEFT && S::PREFETCH_RIGHT) start_after_others();
#pragma unroll 1
  for (int tile = block / across, turn = 0; tile < S::TILES; tile += stride, turn++) {
    auto* mine = patches + turn % S::PATCHES * Patch<S>::BYTES;
    const Left* patch = (const Left*)mine;
    float c[DOWN][RIGHT][4] = {};
    if constexpr (STAY) {
      commit_copies();
      if (S::PATCHES > 1) {
        fetch_patch(tile + stride, turn + 1);
        commit_copies();
      }
      await_copies<S::PATCHES - 1>();
      BARRIER;
#pragma unroll 1
      for (int step = 0; step < steps; step++)
        if (works)
          multiply_fprop<S>(c, patch, rows, stages + step * STAGE, n_of_warp,
                              step * S::BK, group);
    } else {
#pragma unroll 1
      for (int ahead = 0; ahead < FIRST; ahead++) {
        if (turn > 0) fetch(ahead);
        commit_copies();
      }
#pragma unroll 1
      for (int step = 0; step < steps; step++) {
        await_copies<S::STAGES - 2>();
        BARRIER;
        fetch(step + S::STAGES - 1);
        commit_copies();
        if (works)
          multiply_fprop<S>(c, patch, rows, stages + step % S::STAGES * STAGE,
                              n_of_warp, step * S::BK, group);
      }
    }
    BARRIER;
    float* sums = (float*)mine;
    if (works) stage_sums<S>(sums + group * S::BM * S::SUMS, c, m_of_warp, n_of_warp);
    finish_tile<S>(sums, 0, 0, 0, tile, n0, parts, counters, store);
    BARRIER;
    if (S::PATCHES == 1) fetch_patch(tile + stride, turn + 1);
  }
}
