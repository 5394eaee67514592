// Products of a block that has all its arrays in shared memory: nothing is staged, and
// a warp takes tiles of 16 x 16 or 16 x 32. Tensor cores add up in any order of the
// inner axis, so that a thread takes neighbours: of a row, a column, or the sums.
struct Fragment {
  int row, column, inner;  // of a thread, in a tile
  static METHOD Fragment mine() {
    const int lane = THREAD % 32;
    return {lane / 4 * 2, lane % 4 * 4, lane % 4 * 4};
  }
};

// Four inner elements of two lines of an operand: lines are rows of the left one, and
// columns of the right one. ALONG says what lies side by side: 1 inner elements, 2 lines.
template <int ALONG, int LINES, int INNER, class Line, class Inner>
DEVICE void load_fragment(float (&to)[2][4], const float* from, int line, int k,
                          Line line_offset, Inner inner_offset) {
  constexpr bool ALL_K = INNER % 16 == 0, ALL_LINES = LINES % 16 == 0;
  if constexpr (ALONG == 1 && ALL_K) {
#pragma unroll
    for (int i = 0; i < 2; i++)
      if (ALL_LINES || line + i < LINES)
        load_lanes(to[i], from + line_offset(line + i) + inner_offset(k));
      else
        for (int j = 0; j < 4; j++) to[i][j] = 0.0f;
  } else if constexpr (ALONG == 2 && LINES % 2 == 0) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
      float pair[2] = {0.0f, 0.0f};
      if ((ALL_LINES || line < LINES) && (ALL_K || k + j < INNER))
        load_lanes(pair, from + line_offset(line) + inner_offset(k + j));
      to[0][j] = pair[0], to[1][j] = pair[1];
    }
  } else {
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const bool exists =
            (ALL_LINES || line + i < LINES) && (ALL_K || k + j < INNER);
        to[i][j] =
            exists ? from[line_offset(line + i) + inner_offset(k + j)] : 0.0f;
      }
  }
}
template <bool ROUND> DEVICE unsigned operand_of(float x) {
  return ROUND ? as_tf32(x) : bits_of_float(x);
}

template <class S, class Store>
DEVICE void contract_resident(int block, int blocks, const float* left,
                              const float* right, float*, unsigned*, Store store) {
  constexpr int DOWN = (S::M + 15) / 16, ACROSS = (S::N + S::BN - 1) / S::BN;
  constexpr int WARPS = THREADS / 32, HALVES = S::BN / 16;
  const Fragment mine = Fragment::mine();
  const auto left_row = [](int m) { return S::left_row(m); };
  const auto left_inner = [](int k) { return S::left_inner(k); };
  const auto right_column = [](int n) { return S::right_column(n); };
  const auto right_inner = [](int k) { return S::right_inner(k); };
#pragma unroll 1
  for (int tile = block * WARPS + THREAD / 32; tile < S::BATCHES * DOWN * ACROSS;
       tile += blocks * WARPS) {
    const int b = tile / (DOWN * ACROSS), m0 = tile / ACROSS % DOWN * 16;
    const int n0 = tile % ACROSS * S::BN;
    const float* from = left + S::left_batch(b);
    const float* by = right + S::right_batch(b);
    float sums[HALVES][2][4] = {};  // of even columns, and of odd ones
#pragma unroll 4
    for (int k0 = 0; k0 < S::K; k0 += 16) {
      float rows[2][4], columns[HALVES][2][4];
      const int k = k0 + mine.inner;
      load_fragment<S::LEFT_ALONG, S::M, S::K>(rows, from, m0 + mine.row, k, left_row,
                                               left_inner);
#pragma unroll
      for (int half = 0; half < HALVES; half++)
        load_fragment<S::RIGHT_ALONG, S::N, S::K>(columns[half], by,
                                                  n0 + half * 16 + mine.row, k,
                                                  right_column, right_inner);
#pragma unroll
      for (int pair = 0; pair < 4; pair += 2) {
        unsigned a[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
          a[i] = operand_of<S::ROUND_LEFT>(rows[i % 2][pair + i / 2]);
#pragma unroll
        for (int half = 0; half < HALVES; half++)
#pragma unroll
          for (int odd = 0; odd < 2; odd++) {
            const float(&column)[4] = columns[half][odd];
            const unsigned two[2] = {operand_of<S::ROUND_RIGHT>(column[pair]),
                                     operand_of<S::ROUND_RIGHT>(column[pair + 1])};
            multiply_tf32(sums[half][odd], a, two);
          }
      }
    }
    // A thread has four neighbours of two rows, or twice that. Rows often are multiples
    // of all banks apart: every other one begins with the second half.
    const bool swapped = HALVES == 2 && mine.row % 4 != 0;
#pragma unroll
    for (int half = 0; half < HALVES; half++)
#pragma unroll
      for (int first = 0; first < 4; first += S::LANES) {
        int m[2], n[2];
        bool exists[2];
        float value[2][S::LANES];
        const int start = n0 + mine.column + first;
#pragma unroll
        for (int i = 0; i < 2; i++) {
          m[i] = m0 + mine.row + i, n[i] = start + (swapped ? 1 - half : half) * 16;
          exists[i] =
              (S::M % 16 == 0 || m[i] < S::M) && (S::N % S::BN == 0 || n[i] < S::N);
          if (!exists[i]) m[i] = n[i] = 0;  // an element that can be read
#pragma unroll
          for (int lane = 0; lane < S::LANES; lane++) {
            const int odd = (first + lane) % 2, at = i * 2 + (first + lane) / 2;
            value[i][lane] = swapped ? sums[HALVES - 1 - half][odd][at]
                                     : sums[half][odd][at];
          }
        }
        store(0, b, m, n, exists, value);
      }
  }
}
