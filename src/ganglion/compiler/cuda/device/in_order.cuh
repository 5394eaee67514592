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
  static constexpr int STRIDE = SETS * CHUNK;  // of the chunks of a set
  // Whether all stages have all of their chunks.
  static constexpr bool FULL = S::CUTS == 1 && S::K % (EACH * STRIDE) == 0;
  int first, end;  // of the inner axis, in one stage
  DEVICE Parts at(unsigned number) {
    const unsigned part = number / STAGES, cut = part / SETS;
    const unsigned begin = STEPS * cut / S::CUTS * (S::CUT_STEP / CHUNK);
    const unsigned chunk = begin + number % STAGES * (EACH * SETS) + part % SETS;
    const int end = STEPS * (cut + 1) / S::CUTS * S::CUT_STEP;
    return {(int)chunk * CHUNK, end < S::K ? end : S::K};
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

// The products of some chunks of a stage, without a branch: while some are multiplied,
// the next operands are loaded.
template <class S, int COUNT, int DOWN, int RIGHT>
DEVICE void multiply_chunks(float (&c)[S::AT_ONCE][DOWN][RIGHT][4],
                            const typename S::Left* at, const typename S::Right* by,
                            int m0, int n0, int first = 0) {
  typedef Parts<S> P;
#pragma unroll
  for (int chunk = 0; chunk < COUNT; chunk++)
#pragma unroll
    for (int group = 0; group < S::AT_ONCE; group++)
      multiply_parts<S>(c[group], at, by, m0, n0,
                        (first + chunk) * P::CHUNK + group * P::KS);
}

// The products of one stage of a set of groups, each with sums of its own. Behind the
// end, within a chunk, there are zeros.
template <class S, int DOWN, int RIGHT>
DEVICE void multiply_part(float (&c)[S::AT_ONCE][DOWN][RIGHT][4],
                          const typename S::Left* at, const typename S::Right* by,
                          int m0, int n0, const Parts<S>& part) {
  typedef Parts<S> P;
  constexpr int EACH = P::EACH, FEWER = EACH > 1 ? EACH - 1 : 1;
  const int left = part.end - part.first;
  if (P::FULL || left > (EACH - 1) * P::STRIDE) {
    multiply_chunks<S, EACH>(c, at, by, m0, n0);
  } else if (EACH > 2 && left > (FEWER - 1) * P::STRIDE) {
    multiply_chunks<S, FEWER>(c, at, by, m0, n0);
  } else {
#pragma unroll 1
    for (int chunk = 0; chunk * P::STRIDE < left; chunk++)
      multiply_chunks<S, 1>(c, at, by, m0, n0, chunk);
  }
}

// Finish a tile whose sums threads have in registers: four neighbours each time, or
// through shared memory.
template <class S, int DOWN, int RIGHT, class Store>
DEVICE void finish_sums(float* sums, const float (&c)[DOWN][RIGHT][4], int tile, int b,
                        int m0, int n0, int m_of_warp, int n_of_warp, float* parts,
                        unsigned* counters, Store store) {
  if constexpr (!SumsStay<S>::YES) {
    stage_sums<S, true>(sums, c, m_of_warp, n_of_warp);
    finish_tile<S>(sums, tile, 0, b, m0, n0, parts, counters, store);
  } else {
    typedef Warp<S> W;
    constexpr int QUADS = RIGHT / 2, COUNT = DOWN * 2 * QUADS, TURNS = S::TURNS;
    static_assert(S::LANES == 4 && W::Q == 2 && COUNT % TURNS == 0, "whole turns");
    const int g = THREAD % 32 / 4, t = THREAD % 4;
#pragma unroll
    for (int first = 0; first < COUNT; first += TURNS) {
      int m[TURNS], n[TURNS];
      bool exists[TURNS];
      float value[TURNS][4];
#pragma unroll
      for (int u = 0; u < TURNS; u++) {
        const int at = first + u, i = at / QUADS / 2, half = at / QUADS % 2;
        const int j = at % QUADS * 2;
        m[u] = m0 + m_of_warp + W::row(i, half, g);
        n[u] = n0 + n_of_warp + W::column(j, 2 * t);
        exists[u] = (S::M % S::BM == 0 || m[u] < S::M) &&
                    (S::N % S::BN == 0 || n[u] < S::N);
        if (!exists[u]) m[u] = n[u] = 0;  // an element that can be read
#pragma unroll
        for (int lane = 0; lane < 4; lane++)
          value[u][lane] = c[i][j + lane % 2][half * 2 + lane / 2];
      }
      store(0, b, m, n, exists, value);
    }
  }
}

// Add what groups have to the sums of a cut, and the last ones of a cut to those of all.
template <class S, int DOWN, int RIGHT, int D, int R>
DEVICE void join_set(int set, const float (&c)[S::AT_ONCE][DOWN][RIGHT][4],
                     float (&cut)[DOWN][RIGHT][4], float (&total)[D][R][4]) {
#pragma unroll
  for (int group = 0; group < S::AT_ONCE; group++)
    for_each_sum<DOWN, RIGHT>([&](int i, int j, int e) {
      cut[i][j][e] += scaled<S>(c[group][i][j][e]);
    });
  if constexpr (S::CUTS > 1)
    if (set % Parts<S>::SETS == Parts<S>::SETS - 1)
      for_each_sum<DOWN, RIGHT>([&](int i, int j, int e) {
        total[i][j][e] += cut[i][j][e];
        cut[i][j][e] = 0.0f;
      });
}
template <class S, class Cut, class Total>
DEVICE const auto& joined_sums(const Cut& cut, const Total& total) {
  if constexpr (S::CUTS > 1)
    return total;
  else
    return cut;
}

template <class S, class Store>
DEVICE void contract_in_order(int block, int blocks, const typename S::Left* left,
                              const typename S::Right* right, float* parts,
                              unsigned* counters, Store store,
                              const int* index = nullptr) {
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
    lefts.begin(left + S::left_batch(p.b), p.m0, index);
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
    float cut[DOWN][RIGHT][4] = {};
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
    for (int set = 0; set < S::CUTS * P::SETS; set++) {
      float c[S::AT_ONCE][DOWN][RIGHT][4] = {};
#pragma unroll 1
      for (int of_set = 0; of_set < P::STAGES; of_set++) {
        const int stage = set * P::STAGES + of_set;
        await_copies<S::STAGES - 2>();
        BARRIER;
        fetch_sides(stage + S::STAGES - 1, true, true);
        commit_copies();
        const auto* at = shared_bytes + stage % S::STAGES * Stage<S>::BYTES;
        multiply_part<S>(c, (const Left*)at, (const Right*)(at + Stage<S>::LEFT),
                         m_of_warp, n_of_warp, P::at(stage));
      }
      join_set<S>(set, c, cut, total);
    }
    await_copies<0>();
    BARRIER;
    finish_sums<S>((float*)shared_bytes, joined_sums<S>(cut, total), p.tile, p.b, p.m0,
                   p.n0, m_of_warp, n_of_warp, parts, counters, store);
    BARRIER;
  }
}

// The same where one tile has all columns: a block keeps the right operand, and takes
// every BLOCKS-th tile; the rows of the next one come while it finishes one.
template <class S, class Store>
DEVICE void contract_keeping_right(int block, int blocks, const typename S::Left* left,
                                   const typename S::Right* right, float* parts,
                                   unsigned* counters, Store store,
                                   const int* index = nullptr) {
  typedef typename S::Left Left;
  typedef typename S::Right Right;
  typedef Parts<S> P;
  static_assert(S::BN >= S::N, "a tile has all columns");
  constexpr int DOWN = S::BM / S::WM / 16, RIGHT = S::BN / S::WN / 8;
  constexpr int AHEAD = S::STAGES - 1;
  auto* ring = shared_bytes + P::COUNT * Stage<S>::RIGHT;
  float* sums = (float*)(ring + S::STAGES * Stage<S>::LEFT);
  const int warp = THREAD / 32, tiles = (S::TILES - block + blocks - 1) / blocks;
  const int m_of_warp = warp % S::WM * (S::BM / S::WM);
  const int n_of_warp = warp / S::WM * (S::BN / S::WN);
  LeftCopies<S, P::CHUNK, P::SETS> lefts;
  RightCopies<S, P::CHUNK, P::SETS> rights;
  rights.begin(right, 0);
  // Turns are stages through all tiles of the block.
  auto fetch_left = [&](int turn) {
    if (turn >= tiles * P::COUNT) return;
    const int stage = turn % P::COUNT, number = block + turn / P::COUNT * blocks;
    if (stage == 0) lefts.begin(left, number * S::BM, index);
    const P part = P::at(stage);
    if (part.first < part.end)
      lefts.copy((Left*)(ring + turn % S::STAGES * Stage<S>::LEFT), part.first,
                 part.end);
  };
  auto fetch_right = [&](int stage) {
    const P part = P::at(stage);
    if (part.first < part.end)
      rights.copy((Right*)(shared_bytes + stage * Stage<S>::RIGHT), part.first,
                  part.end);
  };
  if (S::PREFETCH_LEFT)
#pragma unroll 1
    for (int turn = 0; turn < AHEAD; turn++) fetch_left(turn);
  if (S::PREFETCH_RIGHT)
#pragma unroll 1
    for (int stage = 0; stage < P::COUNT; stage++) fetch_right(stage);
  if (S::PREFETCH_LEFT || S::PREFETCH_RIGHT) {
    commit_copies();
    start_after_others();
  }
#pragma unroll 1
  for (int turn = 0; turn < AHEAD; turn++) {
    if (!S::PREFETCH_LEFT) fetch_left(turn);
    if (!S::PREFETCH_RIGHT && turn < P::COUNT) fetch_right(turn);
    if (!S::PREFETCH_RIGHT && turn == AHEAD - 1)
      for (int stage = AHEAD; stage < P::COUNT; stage++) fetch_right(stage);
    commit_copies();
  }
#pragma unroll 1
  for (int tile = 0; tile < tiles; tile++) {
    float cut[DOWN][RIGHT][4] = {};
    float total[S::CUTS > 1 ? DOWN : 1][S::CUTS > 1 ? RIGHT : 1][4] = {};
#pragma unroll 1
    for (int set = 0; set < S::CUTS * P::SETS; set++) {
      float c[S::AT_ONCE][DOWN][RIGHT][4] = {};
#pragma unroll 1
      for (int of_set = 0; of_set < P::STAGES; of_set++) {
        const int stage = set * P::STAGES + of_set, turn = tile * P::COUNT + stage;
        await_copies<S::STAGES - 2>();
        BARRIER;
        fetch_left(turn + AHEAD);
        commit_copies();
        multiply_part<S>(c, (const Left*)(ring + turn % S::STAGES * Stage<S>::LEFT),
                         (const Right*)(shared_bytes + stage * Stage<S>::RIGHT),
                         m_of_warp, n_of_warp, P::at(stage));
      }
      join_set<S>(set, c, cut, total);
    }
    // All have read the sums of the tile before: there were barriers since.
    const int number = block + tile * blocks;
    finish_sums<S>(sums, joined_sums<S>(cut, total), number, 0, number * S::BM, 0,
                   m_of_warp, n_of_warp, parts, counters, store);
  }
  await_copies<0>();
  BARRIER;
}
