#include "contract.cuh"
// On tensor cores: warps hold parts of a tile, and parts of the inner axis (WK of them,
// added up in order at the end). Operands come by asynchronous copies, STAGES ahead.
template <class S> struct Stage {
  typedef typename S::Left Left;
  typedef typename S::Right Right;
  static constexpr int PAD = 16 / (int)sizeof(Left);
  static constexpr int BESIDE = sizeof(Left) == 1 ? 16 : 8;
  static constexpr int LEFT_LINE = S::LEFT_ROWS ? S::BK + PAD : S::BM + BESIDE;
  static constexpr int LEFT_LINES = S::LEFT_ROWS ? S::BM : S::BK;
  static constexpr int LEFT = LEFT_LINES * LEFT_LINE * (int)sizeof(Left);
  // Lines are an odd number of 8 elements, against bank conflicts.
  static constexpr int RIGHT_LINE = S::BN % 16 ? S::BN : S::BN + 8;
  static constexpr int RIGHT = S::BK * RIGHT_LINE * (int)sizeof(Right);
  static constexpr int BYTES = LEFT + RIGHT;
};

// Where an index inside of a stage is on the inner axis, from the stage's first one on:
// a stage may be of every APART-th chunk. Without chunks, stages are all there is.
template <int CHUNK, int APART> DEVICE int inner_of(int at) {
  if constexpr (CHUNK == 0)
    return at;
  else
    return at / CHUNK * (APART * CHUNK) + at % CHUNK;
}

// What an index finds of the left operand, where stages have chunks: 0 nothing, 1 rows,
// 2 inner ones.
template <class S, int CHUNK> DEVICE constexpr int gathered_axis() {
  if constexpr (CHUNK == 0)
    return 0;
  else
    return S::GATHERED;
}

// Where a thread copies the left operand from: rows that stay, inner indices that move.
template <class S, int CHUNK = 0, int APART = 1> struct LeftCopies {
  typedef typename S::Offset Offset;
  typedef typename S::Left Left;
  static constexpr int V = S::LEFT_LANES;
  static constexpr int ACROSS = (S::LEFT_ROWS ? S::BK : S::BM) / V;
  static constexpr int DOWN = S::LEFT_ROWS ? S::BM : S::BK;
  static constexpr int STEP = THREADS / ACROSS > 0 ? THREADS / ACROSS : 1;
  static constexpr int COUNT = (DOWN + STEP - 1) / STEP;
  static constexpr bool ALL_M = S::M % S::BM == 0, ALL_K = S::K % S::BK == 0;
  static constexpr int GATHERED = gathered_axis<S, CHUNK>();
  static_assert(THREADS % ACROSS == 0, "threads cover whole lines");
  // In chunks, copies of a thread that are alike need one address for all of them.
  static constexpr bool ONE =
      CHUNK > 0 && S::LEFT_SAME && S::LEFT_EVEN && ALL_M && DOWN % STEP == 0;
  // Where each copy starts; steps that are even only move all of them alike.
  const Left* cursors[ONE ? 1 : COUNT];
  bool exists[S::LEFT_ROWS ? COUNT : 1];
  const int* index;
  METHOD void begin(const Left* from, int m0, const int* found_by = nullptr) {
    index = found_by;
    const int line = THREAD / ACROSS, at = THREAD % ACROSS * V;
    const Offset first = S::LEFT_SAME ? S::left_row(m0) + S::left_row(line) : 0;
#pragma unroll
    for (int i = 0; i < (ONE ? 1 : COUNT); i++) {
      const int m = m0 + (S::LEFT_ROWS ? line + i * STEP : at);
      const int k = inner_of<CHUNK, APART>(S::LEFT_ROWS ? at : line + i * STEP);
      const bool inside = ALL_M || (m < S::M && (!S::LEFT_ROWS || m - m0 < DOWN));
      exists[S::LEFT_ROWS ? i : 0] = inside;
      const Offset row = S::LEFT_SAME      ? first + S::left_row(i * STEP)
                         : GATHERED == 1 && inside ? S::left_row(found(m))
                                                   : S::left_row(m);
      cursors[i] = from + (inside ? row : 0);
      if (S::LEFT_EVEN) cursors[i] += S::left_inner(k);
    }
  }
  // Which row of the table is at a place of the batch; never one behind its end.
  METHOD unsigned found(int at) const {
    if constexpr (GATHERED > 0) {
      const unsigned row = (unsigned)index[at];
      return row < S::TABLE_ROWS ? row : S::TABLE_ROWS - 1;
    }
    return 0;
  }
  METHOD void copy(Left* to, int k0, int end = S::K) const {
    const int line = THREAD / ACROSS, at = THREAD % ACROSS * V;
    to += line * Stage<S>::LEFT_LINE + at;
    const Offset step_offset = S::LEFT_EVEN ? S::left_inner(k0) : 0;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
      const int k = k0 + inner_of<CHUNK, APART>(S::LEFT_ROWS ? at : line + i * STEP);
      const bool inside = (ALL_K && CHUNK == 0) || k < end;
      const int inner = GATHERED == 2 && inside ? found(k) : k;
      const Left* from =
          cursors[ONE ? 0 : i] + (S::LEFT_EVEN ? step_offset : S::left_inner(inner));
      if (ONE) from += S::left_row(i * STEP);
      const bool wanted = exists[S::LEFT_ROWS && !ONE ? i : 0] && inside;
      if (DOWN % STEP == 0 || line + i * STEP < DOWN)
        copy_async<V * (int)sizeof(Left), S::LEFT_AGAIN>(
            to + i * STEP * Stage<S>::LEFT_LINE, from, wanted);
    }
  }
};

template <class S, int CHUNK = 0, int APART = 1> struct RightCopies {
  typedef typename S::Offset Offset;
  typedef typename S::Right Right;
  static constexpr int V = S::RIGHT_LANES, ACROSS = S::BN / V;
  static constexpr int STEP = THREADS / ACROSS;  // some threads may be left over
  static constexpr int COUNT = (S::BK + STEP - 1) / STEP;
  static constexpr bool ALL_N = S::N % S::BN == 0, ALL_K = S::K % S::BK == 0;
  static constexpr bool ONE = CHUNK > 0 && S::RIGHT_EVEN && CHUNK % STEP == 0;
  const Right* cursors[ONE ? 1 : COUNT];
  bool exists;
  METHOD void begin(const Right* from, int n0) {
    const int n = n0 + THREAD % ACROSS * V;
    exists = ALL_N || n < S::N;
#pragma unroll
    for (int i = 0; i < (ONE ? 1 : COUNT); i++) {
      cursors[i] = from + (exists ? S::right_column(n) : 0);
      const int k = inner_of<CHUNK, APART>(THREAD / ACROSS + i * STEP);
      if (S::RIGHT_EVEN) cursors[i] += S::right_inner(k);
    }
  }
  METHOD void copy(Right* to, int k0, int end = S::K) const {
    const int line = THREAD / ACROSS, at = THREAD % ACROSS * V;
    to += line * Stage<S>::RIGHT_LINE + at;
    const Offset step_offset = S::RIGHT_EVEN ? S::right_inner(k0) : 0;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
      const int k = k0 + inner_of<CHUNK, APART>(line + i * STEP);
      const Right* from = cursors[ONE ? 0 : i] +
                          (S::RIGHT_EVEN ? step_offset : S::right_inner(k));
      if (ONE) from += S::right_inner(inner_of<CHUNK, APART>(i * STEP));
      if ((THREADS % ACROSS == 0 || line < STEP) &&
          (S::BK % STEP == 0 || line + i * STEP < S::BK))
        copy_async<V * (int)sizeof(Right), false>(
            to + i * STEP * Stage<S>::RIGHT_LINE, from,
            exists && ((ALL_K && CHUNK == 0) || k < end));
    }
  }
};

// Whether threads finish the sums that they have, instead of through shared memory.
template <class S, class = void> struct SumsStay {
  static constexpr bool YES = false;
};
template <class S> struct SumsStay<S, decltype((void)S::SUMS_STAY)> {
  static constexpr bool YES = S::SUMS_STAY;
};

// How rows and columns are assigned to the tiles of 16 x 8 that a warp multiplies: such
// that registers are loaded in the order in which tensor cores want them, or that what
// a thread rounds of several tiles lies side by side.
template <class S> struct Warp {
  static constexpr int DOWN = S::BM / S::WM / 16, RIGHT = S::BN / S::WN / 8;
  static constexpr bool LEFT_BYTES = sizeof(typename S::Left) == 1;
  static constexpr bool LEFT_HALF = sizeof(typename S::Left) == 2;
  static constexpr bool RIGHT_HALF = sizeof(typename S::Right) == 2;
  static constexpr bool IN_ORDER = S::LEFT_ROWS || LEFT_HALF || LEFT_BYTES;
  static constexpr int P = !S::BF16 || DOWN < 2 ? 1 : 2;
  static constexpr int Q = SumsStay<S>::YES         ? 2
                           : !S::BF16 || RIGHT_HALF ? 1
                           : RIGHT < 4              ? RIGHT
                                                    : 4;
  static_assert((IN_ORDER || DOWN % P == 0) && RIGHT % Q == 0, "whole groups");
  DEVICE int row(int i, int half, int g) {
    if (IN_ORDER) return i * 16 + half * 8 + g;
    return i / P * (16 * P) + g * (2 * P) + i % P * 2 + half;
  }
  DEVICE int column(int j, int c) {
    return j / Q * (8 * Q) + c * Q + j % Q;
  }
};

// An operand as tensor cores take it; what is rounded already is left as it is.
template <bool ROUND> DEVICE unsigned operand(float x) {
  return ROUND ? as_tf32(x) : bits_of_float(x);
}

// Sixteen rows of a left operand that lie along the inner axis.
template <class S>
DEVICE void load_left(unsigned (&left)[4], const typename S::Left* row) {
  load_matrices(left, row);
  if constexpr (!S::BF16) {
#pragma unroll
    for (int h = 0; h < 4; h++)
      left[h] = operand<S::ROUND_LEFT>(float_of_bits(left[h]));
  }
}

// The left operand of the tiles of 16 rows of a warp.
template <class S>
DEVICE void left_parts(unsigned (&left)[Warp<S>::DOWN][4], const typename S::Left* a,
                       int m0, int k) {
  typedef Warp<S> W;
  constexpr int LINE = Stage<S>::LEFT_LINE;
  const int lane = THREAD % 32, g = lane / 4, t = lane % 4;
  if constexpr (W::LEFT_BYTES) {
    // Bytes are exact as they are; sums are scaled instead.
    auto byte = [&](int m, int k) {
      return (float)a[S::LEFT_ROWS ? m * LINE + k : k * LINE + m];
    };
#pragma unroll
    for (int i = 0; i < W::DOWN; i++)
#pragma unroll
      for (int h = 0; h < 4; h++) {
        const int m = m0 + W::row(i, h % 2, g);
        const int kk = S::BF16 ? k + 2 * t + h / 2 * 8 : k + t + h / 2 * 4;
        left[i][h] = S::BF16 ? as_bf16_pair(byte(m, kk), byte(m, kk + 1))
                             : bits_of_float(byte(m, kk));
      }
  } else if constexpr (S::LEFT_ROWS && W::LEFT_HALF == S::BF16) {
    const auto* row = a + (m0 + lane % 16) * LINE + k + lane / 16 * Stage<S>::PAD;
#pragma unroll
    for (int i = 0; i < W::DOWN; i++) load_left<S>(left[i], row + i * 16 * LINE);
  } else if constexpr (W::LEFT_HALF) {
    const auto* line = a + (k + lane / 16 * 8 + lane % 8) * LINE;
#pragma unroll
    for (int i = 0; i < W::DOWN; i++)
      load_transposed(left[i], line + m0 + i * 16 + lane / 8 % 2 * 8);
  } else if constexpr (S::LEFT_ROWS) {
#pragma unroll
    for (int i = 0; i < W::DOWN; i++)
#pragma unroll
      for (int h = 0; h < 4; h++) {
        float pair[2];
        const int m = m0 + W::row(i, h % 2, g);
        load_lanes(pair, a + m * LINE + k + 2 * t + h / 2 * 8);
        left[i][h] = as_bf16_pair(pair[0], pair[1]);
      }
  } else {
#pragma unroll
    for (int i = 0; i < W::DOWN; i += W::P)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        float first[2 * W::P], next[2 * W::P];
        const int kk = S::BF16 ? k + 2 * t + half * 8 : k + t + half * 4;
        const float* at = a + kk * LINE + m0 + W::row(i, 0, g);
        load_lanes(first, at);
        if constexpr (S::BF16) load_lanes(next, at + LINE);
#pragma unroll
        for (int p = 0; p < 2 * W::P; p++)
          left[i + p / 2][half * 2 + p % 2] =
              S::BF16 ? as_bf16_pair(first[p], next[p])
                      : operand<S::ROUND_LEFT>(first[p]);
      }
  }
}

template <class S>
DEVICE void right_parts(unsigned (&right)[Warp<S>::RIGHT][2],
                        const typename S::Right* b, int n0, int k) {
  typedef Warp<S> W;
  constexpr int LINE = Stage<S>::RIGHT_LINE;
  const int lane = THREAD % 32, g = lane / 4, t = lane % 4;
  if constexpr (W::RIGHT_HALF) {
    const auto* at = b + (k + lane % 16) * LINE + n0;
#pragma unroll
    for (int j = 0; j < W::RIGHT; j += 2) {
      const bool both = j + 1 < W::RIGHT;  // else the second half is the first again
      unsigned words[4];
      load_transposed(words, at + j * 8 + (both ? lane / 16 * 8 : 0));
#pragma unroll
      for (int h = 0; h < (both ? 4 : 2); h++) right[j + h / 2][h % 2] = words[h];
    }
  } else {
#pragma unroll
    for (int j = 0; j < W::RIGHT; j += W::Q)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        float first[W::Q], next[W::Q];
        const int kk = S::BF16 ? k + 2 * t + half * 8 : k + t + half * 4;
        const float* at = b + kk * LINE + n0 + W::column(j, g);
        load_lanes(first, at);
        if constexpr (S::BF16) load_lanes(next, at + LINE);
#pragma unroll
        for (int q = 0; q < W::Q; q++)
          right[j + q][half] =
              S::BF16 ? as_bf16_pair(first[q], next[q])
                      : operand<S::ROUND_RIGHT>(first[q]);
      }
  }
}

template <class S>
DEVICE void multiply(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  if constexpr (S::BF16)
    multiply_bf16(c, a, b);
  else
    multiply_tf32(c, a, b);
}

// The products of as many inner elements as tensor cores take at once.
template <class S, int DOWN, int RIGHT>
DEVICE void multiply_parts(float (&c)[DOWN][RIGHT][4], const typename S::Left* a,
                           const typename S::Right* b, int m0, int n0, int k) {
  unsigned left[DOWN][4], right[RIGHT][2];
  right_parts<S>(right, b, n0, k);
  left_parts<S>(left, a, m0, k);
#pragma unroll
  for (int i = 0; i < DOWN; i++)
#pragma unroll
    for (int j = 0; j < RIGHT; j++) multiply<S>(c[i][j], left[i], right[j]);
}

// The products of one step of BK: each group of warps takes its own part of it.
template <class S, int DOWN, int RIGHT>
DEVICE void multiply_step(float (&c)[DOWN][RIGHT][4], const typename S::Left* a,
                          const typename S::Right* b, int m0, int n0, int group) {
  constexpr int KS = S::BF16 ? 16 : 8;
#pragma unroll
  for (int step = 0; step < S::BK / KS / S::WK; step++)
    multiply_parts<S>(c, a, b, m0, n0, (step * S::WK + group) * KS);
}

// A sum of products; of bytes, it is still to be scaled.
template <class S> DEVICE float scaled(float sum) {
  if constexpr (Warp<S>::LEFT_BYTES)
    return rounded_product(S::LEFT_SCALE, sum);
  else
    return sum;
}

// Put a warp's sums where all threads of the block find them; some are SCALED already.
template <class S, bool SCALED = false, int DOWN, int RIGHT>
DEVICE void stage_sums(float* sums, const float (&c)[DOWN][RIGHT][4], int m0, int n0) {
  auto scale = [](float sum) { return SCALED ? sum : scaled<S>(sum); };
  typedef Warp<S> W;
  const int lane = THREAD % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int i = 0; i < DOWN; i++)
#pragma unroll
    for (int half = 0; half < 2; half++)
      if constexpr (W::Q == 1) {
#pragma unroll
        for (int j = 0; j < RIGHT; j++) {
          const float side[2] = {scale(c[i][j][half * 2]),
                                 scale(c[i][j][half * 2 + 1])};
          const int m = m0 + W::row(i, half, g), n = n0 + j * 8 + 2 * t;
          store_lanes(sums + m * S::SUMS + n, side);
        }
      } else {
#pragma unroll
        for (int j = 0; j < RIGHT; j += W::Q)
#pragma unroll
          for (int e = 0; e < 2; e++) {
            float side[W::Q];
#pragma unroll
            for (int q = 0; q < W::Q; q++)
              side[q] = scale(c[i][j + q][half * 2 + e]);
            const int m = m0 + W::row(i, half, g), n = n0 + W::column(j, 2 * t + e);
            store_lanes(sums + m * S::SUMS + n, side);
          }
      }
}

template <class S, class Store>
DEVICE void contract_on_tensor_cores(int block, int blocks,
                                     const typename S::Left* left,
                                     const typename S::Right* right, float* parts,
                                     unsigned* counters, Store store) {
  typedef typename S::Left Left;
  typedef typename S::Right Right;
  constexpr int DOWN = S::BM / S::WM / 16, RIGHT = S::BN / S::WN / 8;
  float* sums = (float*)shared_bytes;
  const int warp = THREAD / 32, group = warp / (S::WM * S::WN);
  const int m_of_warp = warp % S::WM * (S::BM / S::WM);
  const int n_of_warp = warp / S::WM % S::WN * (S::BN / S::WN);
#pragma unroll 1
  for (int number = block; number < S::TILES * S::SPLITS; number += blocks) {
    const TileIndex<S> p = TileIndex<S>::at(number);
    LeftCopies<S> lefts;
    RightCopies<S> rights;
    lefts.begin(left + S::left_batch(p.b), p.m0);
    rights.begin(right + S::right_batch(p.b), p.n0);
    auto fetch_sides = [&](int step, bool of_left, bool of_right) {
      if (step < p.end) {
        auto* to = shared_bytes + (step - p.begin) % S::STAGES * Stage<S>::BYTES;
        if (of_left) lefts.copy((Left*)to, step * S::BK);
        if (of_right) rights.copy((Right*)(to + Stage<S>::LEFT), step * S::BK);
      }
    };
    auto fetch = [&](int step) {
      fetch_sides(step, true, true);
      commit_copies();
    };
    float c[DOWN][RIGHT][4] = {};
    bool of_left = true, of_right = true;
    if ((S::PREFETCH_LEFT || S::PREFETCH_RIGHT) && number == block) {
      // What has long been ready comes while the launch before this one ends.
      of_left = !S::PREFETCH_LEFT, of_right = !S::PREFETCH_RIGHT;
#pragma unroll 1
      for (int ahead = 0; ahead < S::STAGES - 1; ahead++)
        fetch_sides(p.begin + ahead, S::PREFETCH_LEFT, S::PREFETCH_RIGHT);
      commit_copies();
      start_after_others();
    }
#pragma unroll 1
    for (int ahead = 0; ahead < S::STAGES - 1; ahead++) {
      fetch_sides(p.begin + ahead, of_left, of_right);
      commit_copies();
    }
#pragma unroll 1
    for (int step = p.begin; step < p.end; step++) {
      await_copies<S::STAGES - 2>();
      BARRIER;
      fetch(step + S::STAGES - 1);
      const auto* at = shared_bytes + (step - p.begin) % S::STAGES * Stage<S>::BYTES;
      multiply_step<S>(c, (const Left*)at, (const Right*)(at + Stage<S>::LEFT),
                       m_of_warp, n_of_warp, group);
    }
    await_copies<0>();
    BARRIER;
    stage_sums<S>(sums + group * S::BM * S::SUMS, c, m_of_warp, n_of_warp);
    finish_tile<S>(sums, p.tile, p.split, p.b, p.m0, p.n0, parts, counters, store);
    BARRIER;
  }
}
