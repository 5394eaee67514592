#include "conv_patch.cuh"
// The gradient of a convolution's weights: a warp holds 16 channels x 16 columns of all
// taps of the window that its block has, and runs through pixels. A patch of the
// images serves all of these taps, read shifted. Pixels are taken in strips of 8
// beside each other, from top to bottom: most of what a strip needs of the image is
// still there from the pixels above.
template <class S> struct Points {
  typedef typename S::Left Left;
  typedef typename S::Right Right;
  static constexpr int BESIDE = (S::ACROSS_X + 7) / 8, TOGETHER = S::BF16 ? 2 : 1;
  static constexpr int STRIPS = S::TILE_IMAGES * BESIDE;
  static constexpr int STEPS = (STRIPS + TOGETHER - 1) / TOGETHER;
  static constexpr int WIDTH = BESIDE * 8 + S::KX - 1;
  static constexpr int HEIGHT = S::TILE_Y + S::TAP_ROWS - 1;
  static constexpr int PIXELS = S::TILE_IMAGES * HEIGHT * WIDTH;
  static constexpr int COUNT = STEPS * TOGETHER * S::TILE_Y * 8;
  // Lines apart such that what a warp reads at once lies in different banks.
  static constexpr int PAD = S::BF16 ? 8 : 4;
  static constexpr int LINE = S::BM + PAD, RIGHT_LINE = S::BN + PAD;
  static constexpr int PATCH = PIXELS * LINE * (int)sizeof(Left);
  static constexpr int BYTES = PATCH + COUNT * RIGHT_LINE * (int)sizeof(Right);
  DEVICE void copy(unsigned char* to, const Left* left, const Right* right, int tile,
                   int channel0, int tap_y, int n0) {
    constexpr int W = 16 / (int)sizeof(Right), wide = S::BN / W;
    const int image0 = tile / S::TILES_Y * S::TILE_IMAGES;
    const int y0 = tile % S::TILES_Y * S::TILE_Y;
#pragma unroll 4
    for (int e = THREAD; e < COUNT * wide; e += THREADS) {
      const unsigned point = (unsigned)e / wide, part = (unsigned)e % wide;
      const unsigned strip = point / (S::TILE_Y * 8);
      const int x = strip % BESIDE * 8 + point % 8;
      const int y = y0 + (int)(point / 8 % S::TILE_Y);
      const int image = image0 + (int)(strip / BESIDE), n = n0 + (int)part * W;
      copy_async<16, true>(
          (Right*)(to + PATCH) + point * RIGHT_LINE + part * W,
          right + (typename S::Offset)image * S::RIGHT_IMAGE + y * S::RIGHT_Y +
              x * S::RIGHT_X + n,
          (STRIPS % TOGETHER == 0 || strip < STRIPS) && image < S::IMAGES && y < S::Y &&
              (S::ACROSS_X % 8 == 0 || x < S::ACROSS_X) && n < S::N);
    }
    copy_patch<S, S::BM, LINE, HEIGHT, WIDTH>((Left*)to, left, image0, y0 + tap_y,
                                              channel0);
  }
  // Where the first window of a strip begins; one that is not there is multiplied by
  // zero.
  DEVICE int window_offset(int strip) {
    if (STRIPS % TOGETHER != 0 && strip >= STRIPS) return 0;
    return (strip / BESIDE * HEIGHT * WIDTH + strip % BESIDE * 8) * LINE;
  }
};

template <bool ROUND>
DEVICE void load_pair(unsigned (&pair)[2], const float* from) {
  float side[2];
  load_lanes(side, from);
  pair[0] = operand<ROUND>(side[0]);
  pair[1] = operand<ROUND>(side[1]);
}

// What a thread holds of one row of the image, for all taps of the window in it.
template <class S, bool BF16> struct ImageRow;
template <class S> struct ImageRow<S, true> {
  unsigned words[S::KX][4];
  METHOD void load(const bf16* at) {
#pragma unroll
    for (int x = 0; x < S::KX; x++) load_transposed(words[x], at + x * Points<S>::LINE);
  }
  METHOD void take(unsigned (&a)[4], int x) const {
#pragma unroll
    for (int h = 0; h < 4; h++) a[h] = words[x][h];
  }
};
// In tf32 a lane has two pixels beside each other, so that they serve several taps.
template <class S> struct ImageRow<S, false> {
  unsigned words[S::KX + 1][2];
  METHOD void load(const float* at) {
#pragma unroll
    for (int x = 0; x <= S::KX; x++)
      load_pair<S::ROUND_LEFT>(words[x], at + x * Points<S>::LINE);
  }
  METHOD void take(unsigned (&a)[4], int x) const {
#pragma unroll
    for (int h = 0; h < 4; h++) a[h] = words[x + h / 2][h % 2];
  }
};

// Sixteen columns of the right operand at 8 pixels of a strip, or of two strips.
template <class S>
DEVICE void load_points(unsigned (&b)[2][2], const typename S::Right* at) {
  if constexpr (S::BF16) {
    unsigned words[4];
    load_transposed(words, at);
#pragma unroll
    for (int h = 0; h < 4; h++) b[h / 2][h % 2] = words[h];
  } else {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      unsigned pair[2];
      load_pair<S::ROUND_RIGHT>(pair, at + h * Points<S>::RIGHT_LINE);
      b[0][h] = pair[0];
      b[1][h] = pair[1];
    }
  }
}

// The products of one strip of pixels, or of two.
template <class S>
DEVICE void multiply_strip(float (&c)[S::TAP_ROWS * S::KX][2][4],
                           const unsigned char* shared, int m, int n, int step) {
  typedef Points<S> P;
  constexpr int ROWS = S::TAP_ROWS, POINTS = S::TILE_Y * 8;
  const int lane = THREAD % 32;
  const auto* left = (const typename S::Left*)shared;
  const auto* right = (const typename S::Right*)(shared + P::PATCH);
  if constexpr (S::BF16) {
    left += P::window_offset(step * 2 + lane / 16) + lane % 8 * P::LINE + m +
            lane / 8 % 2 * 8;
    right += ((step * 2 + lane / 8 % 2) * POINTS + lane % 8) * P::RIGHT_LINE + n +
             lane / 16 * 8;
  } else {
    left += P::window_offset(step) + lane % 4 * 2 * P::LINE + m + lane / 4 * 2;
    right += (step * POINTS + lane % 4 * 2) * P::RIGHT_LINE + n + lane / 4 * 2;
  }
  constexpr bool KEEP = !S::BF16;  // matrices of bf16 would take too many registers
  ImageRow<S, S::BF16> rows[ROWS];
#pragma unroll
  for (int row = 0; row < ROWS - 1; row++)
    if (KEEP) rows[row].load(left + row * P::WIDTH * P::LINE);
#pragma unroll 1
  for (int y0 = 0; y0 < S::TILE_Y; y0 += ROWS)
#pragma unroll
    for (int turn = 0; turn < ROWS; turn++) {
      const int y = y0 + turn;
      if (S::TILE_Y % ROWS != 0 && y >= S::TILE_Y) break;
      if (KEEP)
        rows[(turn + ROWS - 1) % ROWS].load(left + (y + ROWS - 1) * P::WIDTH * P::LINE);
      unsigned b[2][2];
      load_points<S>(b, right + y * 8 * P::RIGHT_LINE);
#pragma unroll
      for (int row = 0; row < ROWS; row++) {
        if (!KEEP)
          rows[(turn + row) % ROWS].load(left + (y + row) * P::WIDTH * P::LINE);
#pragma unroll
        for (int x = 0; x < S::KX; x++) {
          unsigned a[4];
          rows[(turn + row) % ROWS].take(a, x);
          multiply<S>(c[row * S::KX + x][0], a, b[0]);
          multiply<S>(c[row * S::KX + x][1], a, b[1]);
        }
      }
    }
}

template <class S, class Store>
DEVICE void conv_wgrad(int block, int blocks, const typename S::Left* left,
                          const typename S::Right* right, float* parts,
                          unsigned* counters, Store store) {
  typedef Points<S> P;
  constexpr int TAPS = S::TAP_ROWS * S::KX, LANES = S::LANES;
  constexpr int across = (S::N + S::BN - 1) / S::BN;
  constexpr int down = (S::CHANNELS + S::BM - 1) / S::BM;
  const int warp = THREAD / 32, lane = THREAD % 32, group = warp / (S::WM * S::WN);
  const int m = warp % S::WM * 16, n = warp / S::WM % S::WN * 16;
  const int split = block % S::SPLITS, number = block / S::SPLITS;
  const int n0 = number % across * S::BN, channel0 = number / across % down * S::BM;
  const int tap_y = number / across / down * S::TAP_ROWS;
  const int begin = (int)((long long)S::TILES * split / S::SPLITS);
  const int end = (int)((long long)S::TILES * (split + 1) / S::SPLITS);
  auto fetch = [&](int tile) {
    if (tile < end)
      P::copy(shared_bytes + (tile - begin) % S::STAGES * P::BYTES, left, right, tile,
              channel0, tap_y, n0);
    commit_copies();
  };
  float c[TAPS][2][4] = {};
#pragma unroll 1
  for (int ahead = 0; ahead < S::STAGES - 1; ahead++) fetch(begin + ahead);
#pragma unroll 1
  for (int tile = begin; tile < end; tile++) {
    if constexpr (S::STAGES == 1) {
      if (tile > begin) BARRIER;
      fetch(tile);
      await_copies<0>();
      BARRIER;
    } else {
      await_copies<S::STAGES - 2>();
      BARRIER;
      fetch(tile + S::STAGES - 1);
    }
    const auto* at = shared_bytes + (tile - begin) % S::STAGES * P::BYTES;
#pragma unroll 1
    for (int step = group; step < P::STEPS; step += S::WK)
      multiply_strip<S>(c, at, m, n, step);
  }
  await_copies<0>();
  // The groups' sums are added up in order.
  float* sums = (float*)shared_bytes + warp % (S::WM * S::WN) * (TAPS * 8 * 32) + lane;
#pragma unroll 1
  for (int other = 1; other < S::WK; other++) {
    BARRIER;
    if (group == other) {
#pragma unroll
      for (int e = 0; e < TAPS * 8; e++) sums[e * 32] = c[e / 8][e / 4 % 2][e % 4];
    }
    BARRIER;
    if (group == 0) {
#pragma unroll
      for (int e = 0; e < TAPS * 8; e++) c[e / 8][e / 4 % 2][e % 4] += sums[e * 32];
    }
  }
  if (group != 0) return;
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int tap = 0; tap < TAPS; tap++)
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
      for (int e = 0; e < 4; e += LANES) {
        // Neighbours in a row: of two tiles by turns, or of one after the other.
        float value[1][LANES];
#pragma unroll
        for (int l = 0; l < LANES; l++)
          value[0][l] = S::BF16 ? c[tap][e / 2][half * 2 + (e + l) % 2]
                                : c[tap][(e + l) % 2][half * 2 + (e + l) / 2];
        const int channel = channel0 + m + (S::BF16 ? half * 8 + g : 2 * g + half);
        const int column = S::BF16 ? e / 2 * 8 + 2 * t + e % 2 : 4 * t + e;
        const int at[1] = {(tap_y * S::KX + tap) * S::CHANNELS + channel};
        const int to[1] = {n0 + n + column};
        const bool exists[1] = {channel < S::CHANNELS && to[0] < S::N};
        store(split, 0, at, to, exists, value);
      }
}
