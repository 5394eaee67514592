#include "tensor_cores.cuh"
// Products of many models, in tiles that suit all of them, with the bits of one model
// alone. There, the inner axis is split over CUTS blocks, in steps of CUT_STEP, and over
// GROUPS groups of warps; here, each warp takes those parts one after the other, and
// adds them up in the same order. It takes AT_ONCE groups at once, each with sums of its
// own: what they read lies side by side. A stage has up to BK of the inner axis, of one
// such set of groups.
template <class S> struct Parts {
  static constexpr int KS = S::BF16 ? 16 : 8, CHUNK = S::AT_ONCE * KS;
  static constexpr int EACH = S::BK / CHUNK, SETS = S::GROUPS / S::AT_ONCE;
  static constexpr int STEPS = (S::K + S::CUT_STEP - 1) / S::CUT_STEP;
  static constexpr int OF_CUT = (STEPS + S::CUTS - 1) / S::CUTS;  // at most
  static constexpr int LENGTH = OF_CUT * (S::CUT_STEP / KS / S::GROUPS);  // in chunks
  static constexpr int STAGES = (LENGTH + EACH - 1) / EACH;  // of one set
  static constexpr int COUNT = S::CUTS * SETS * STAGES;
  static_assert(S::WK == 1, "a warp takes the whole inner axis");
  static_assert(S::GROUPS % S::AT_ONCE == 0 && S::BK % CHUNK == 0, "whole sets");
  static_assert(!S::LEFT_ROWS || S::LEFT_LANES <= CHUNK, "copies stay in a set");
  int first, end;  // of the inner axis, in one stage
  DEVICE Parts at(int number) {
    const int part = number / STAGES, cut = part / SETS;
    const int begin = STEPS * cut / S::CUTS * (S::CUT_STEP / CHUNK);
    const int chunk = begin + number % STAGES * (EACH * SETS) + part % SETS;
    const int end = STEPS * (cut + 1) / S::CUTS * S::CUT_STEP;
    return {chunk * CHUNK, end < S::K ? end : S::K};
  }
};

template <int DOWN, int RIGHT, class Change>
DEVICE void for_each_sum(Change change) {
#pragma unroll
  for (int i = 0; i < DOWN; i++)
#pragma unroll
    for (int j = 0; j < RIGHT; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) change(i, j, e);
}

template <class S, class Store>
DEVICE void contract_in_order(int block, int blocks, const typename S::Left* left,
                              const typename S::Right* right, float* parts,
                              unsigned* counters, Store store) {
  typedef typename S::Left Left;
  typedef typename S::Right Right;
  typedef Parts<S> P;
  constexpr int DOWN = S::BM / S::WM / 16, RIGHT = S::BN / S::WN / 8;
  const int warp = THREAD / 32;
  const int m_of_warp = warp % S::WM * (S::BM / S::WM);
  const int n_of_warp = warp / S::WM * (S::BN / S::WN);
#pragma unroll 1
  for (int number = block; number < S::TILES; number += blocks) {
    const TileIndex<S> p = TileIndex<S>::at(number);
    LeftCopies<S, P::CHUNK, P::SETS> lefts;
    RightCopies<S, P::CHUNK, P::SETS> rights;
    lefts.begin(left + S::left_batch(p.b), p.m0);
    rights.begin(right + S::right_batch(p.b), p.n0);
    auto fetch_sides = [&](int stage, bool of_left, bool of_right) {
      const P part = P::at(stage);
      if (stage < P::COUNT && part.first < part.end) {
        auto* to = shared_bytes + stage % S::STAGES * Stage<S>::BYTES;
        if (of_left) lefts.copy((Left*)to, part.first, part.end);
        if (of_right)
          rights.copy((Right*)(to + Stage<S>::LEFT), part.first, part.end);
      }
    };
    float c[S::AT_ONCE][DOWN][RIGHT][4] = {}, cut[DOWN][RIGHT][4] = {};
    float total[S::CUTS > 1 ? DOWN : 1][S::CUTS > 1 ? RIGHT : 1][4] = {};
    bool of_left = true, of_right = true;
    if ((S::PREFETCH_LEFT || S::PREFETCH_RIGHT) && number == block) {
      of_left = !S::PREFETCH_LEFT, of_right = !S::PREFETCH_RIGHT;
#pragma unroll 1
      for (int ahead = 0; ahead < S::STAGES - 1; ahead++)
        fetch_sides(ahead, S::PREFETCH_LEFT, S::PREFETCH_RIGHT);
      commit_copies();
      start_after_others();
    }
#pragma unroll 1
    for (int ahead = 0; ahead < S::STAGES - 1; ahead++) {
      fetch_sides(ahead, of_left, of_right);
      commit_copies();
    }
#pragma unroll 1
    for (int stage = 0; stage < P::COUNT; stage++) {
      await_copies<S::STAGES - 2>();
      BARRIER;
      fetch_sides(stage + S::STAGES - 1, true, true);
      commit_copies();
      const auto* at = shared_bytes + stage % S::STAGES * Stage<S>::BYTES;
      const P part = P::at(stage);
#pragma unroll
      for (int chunk = 0; chunk < P::EACH; chunk++)
        // Behind the end, within a chunk, there are zeros.
        if (part.first + chunk * (P::SETS * P::CHUNK) < part.end)
#pragma unroll
          for (int group = 0; group < S::AT_ONCE; group++)
            multiply_parts<S>(c[group], (const Left*)at,
                              (const Right*)(at + Stage<S>::LEFT), m_of_warp,
                              n_of_warp, chunk * P::CHUNK + group * P::KS);
      if (stage % P::STAGES < P::STAGES - 1) continue;
#pragma unroll
      for (int group = 0; group < S::AT_ONCE; group++)
        for_each_sum<DOWN, RIGHT>([&](int i, int j, int e) {
          cut[i][j][e] += scaled<S>(c[group][i][j][e]);
          c[group][i][j][e] = 0.0f;
        });
      if constexpr (S::CUTS > 1)
        if (stage / P::STAGES % P::SETS == P::SETS - 1)
          for_each_sum<DOWN, RIGHT>([&](int i, int j, int e) {
            total[i][j][e] += cut[i][j][e];
            cut[i][j][e] = 0.0f;
          });
    }
    await_copies<0>();
    BARRIER;
    float* sums = (float*)shared_bytes;
    if constexpr (S::CUTS > 1)
      stage_sums<S, true>(sums, total, m_of_warp, n_of_warp);
    else
      stage_sums<S, true>(sums, cut, m_of_warp, n_of_warp);
    finish_tile<S>(sums, p.tile, 0, p.b, p.m0, p.n0, parts, counters, store);
    BARRIER;
  }
}
