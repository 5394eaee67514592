// ---- contractions ------------------------------------------------------------------

// out[b, m, n] = sum of left[b, m, k] * right[b, k, n], tile by tile. `S` says the
// sizes and where elements are; `store` takes LANES neighbours of a row of the result.
// Where the inner axis is cut over blocks, the last of them adds up the parts, or all
// store theirs.
template <class S, class T, class Store>
DEVICE void finish_tile(T* sums, int tile, int split, int b, int m0, int n0, T* parts,
                        unsigned* counters, Store store) {
  constexpr int LANES = S::LANES, ROW = S::SUMS, ACROSS = S::BN / LANES;
  BARRIER;
  constexpr bool joins = S::SPLITS > 1 && !S::SPLIT_K;
  if constexpr (joins) {
    T* mine = parts + ((long long)tile * S::SPLITS + split) * (S::BM * S::BN);
    for (int e = THREAD; e < S::BM * S::BN; e += THREADS) {
      const int m = e / S::BN, n = e % S::BN;
      T total = sums[m * ROW + n];
#pragma unroll
      for (int w = 1; w < S::WK; w++) total += sums[(w * S::BM + m) * ROW + n];
      mine[e] = total;
    }
    if (!am_last(counters + tile, S::SPLITS)) return;
  }
  const T* all = parts + (long long)tile * S::SPLITS * (S::BM * S::BN);
  // A thread keeps its columns: some are left over where ACROSS does not divide them.
  constexpr int TURNS = S::TURNS, COUNT = S::BM * ACROSS;
  constexpr int WORK = THREADS / ACROSS * ACROSS;
#pragma unroll 1
  for (int first = THREAD < WORK ? THREAD : COUNT; first < COUNT;
       first += WORK * TURNS) {
    int m[TURNS], n[TURNS];
    bool exists[TURNS];
    T total[TURNS][LANES];
#pragma unroll
    for (int u = 0; u < TURNS; u++) {
      const int e = first + u * WORK;
      m[u] = S::row_of(m0, e / ACROSS);
      n[u] = n0 + e % ACROSS * LANES;
      exists[u] = e < COUNT && m[u] < S::M && n[u] < S::N;
      if (!exists[u]) m[u] = n[u] = 0;  // an element that can be read
#pragma unroll
      for (int l = 0; l < LANES; l++) total[u][l] = T(0);
      if (!exists[u]) continue;
      const int offset = e / ACROSS * (joins ? S::BN : ROW) + e % ACROSS * LANES;
      if constexpr (joins) {
#pragma unroll 4
        for (int s = 0; s < S::SPLITS; s++)
#pragma unroll
          for (int l = 0; l < LANES; l++)
            total[u][l] +=
                read_through(all + (long long)s * (S::BM * S::BN) + offset + l);
      } else {
#pragma unroll
        for (int w = 0; w < S::WK; w++) {
          T part[LANES];
          load_lanes(part, (const T*)sums + w * S::BM * ROW + offset);
#pragma unroll
          for (int l = 0; l < LANES; l++) total[u][l] += part[l];
        }
      }
    }
    store(split, b, m, n, exists, total);
  }
}

template <class S> struct TileIndex {
  int tile, split, b, m0, n0, begin, end;
  DEVICE TileIndex at(int number) {
    constexpr int down = (S::M + S::BM - 1) / S::BM;
    constexpr int across = (S::N + S::BN - 1) / S::BN;
    TileIndex p;
    p.split = number % S::SPLITS;
    p.tile = number / S::SPLITS;
    p.n0 = p.tile % across * S::BN;
    p.m0 = p.tile / across % down * S::BM;
    p.b = p.tile / (across * down);
    // Whole steps of BK for each split.
    constexpr int steps = (S::K + S::BK - 1) / S::BK;
    p.begin = (int)((long long)steps * p.split / S::SPLITS);
    p.end = (int)((long long)steps * (p.split + 1) / S::SPLITS);
    return p;
  }
};

// Plain arithmetic, for any float type: a thread holds 4 x 4 sums of a 64 x 64 tile.
template <class S, class T, class Store>
DEVICE void contract_simt(int block, int blocks, const T* left, const T* right,
                             T* parts, unsigned* counters, Store store) {
  T(*a)[S::BM + 4] = (T(*)[S::BM + 4]) shared_bytes;
  T(*b)[S::BN + 4] = (T(*)[S::BN + 4])(a + S::BK);
  T* sums = (T*)shared_bytes;
  const int row = THREAD / 16 * 4, column = THREAD % 16 * 4;
#pragma unroll 1
  for (int number = block; number < S::TILES * S::SPLITS; number += blocks) {
    const TileIndex<S> p = TileIndex<S>::at(number);
    const T* from = left + S::left_batch(p.b);
    const T* by = right + S::right_batch(p.b);
    T c[4][4] = {};
    for (int step = p.begin; step < p.end; step++) {
      for (int e = THREAD; e < S::BM * S::BK; e += THREADS) {
        const int m = S::LEFT_ROWS ? e / S::BK : e % S::BM;
        const int k = S::LEFT_ROWS ? e % S::BK : e / S::BM;
        const int mm = p.m0 + m, kk = step * S::BK + k;
        a[k][m] = mm < S::M && kk < S::K ? from[S::left_row(mm) + S::left_inner(kk)]
                                         : T(0);
      }
      for (int e = THREAD; e < S::BN * S::BK; e += THREADS) {
        const int k = e / S::BN, n = e % S::BN;
        const int nn = p.n0 + n, kk = step * S::BK + k;
        b[k][n] = nn < S::N && kk < S::K
                      ? by[S::right_inner(kk) + S::right_column(nn)]
                      : T(0);
      }
      BARRIER;
#pragma unroll 4
      for (int k = 0; k < S::BK; k++)
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
          for (int j = 0; j < 4; j++) c[i][j] += a[k][row + i] * b[k][column + j];
      BARRIER;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) sums[(row + i) * S::SUMS + column + j] = c[i][j];
    finish_tile<S>(sums, p.tile, p.split, p.b, p.m0, p.n0, parts, counters, store);
    BARRIER;
  }
}
