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

// Finds four inner elements of two lines of an operand: lines are rows of the left one,
// and columns of the right one. ALONG says what lies side by side: 1 inner elements, 2
// lines. WIDTH is the length of swizzled rows. Where an operand is a MATRIX of such rows,
// addresses are computed once, and steps of 16 inner elements move them.
template <int ALONG, int WIDTH, bool MATRIX, class Offset> struct Operand {
  const float* start;
  Offset offset;  // of an element, by its line and its inner index
  int line, inner;
  const float *even[2], *odd[2];
  METHOD Operand(const float* start, Offset offset, int line, int inner)
      : start(start), offset(offset), line(line), inner(inner) {
    if constexpr (MATRIX && ALONG == 1) {  // by the line, of even and of odd steps
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const int moved = swizzled<WIDTH>((line % 16 + i) * WIDTH) % WIDTH;
        const float* row =
            start + offset(0, 0) + (line + i) * WIDTH + (inner ^ (moved & 8));
        even[i] = row + (moved & 16), odd[i] = row - (moved & 16);
      }
    } else if constexpr (MATRIX) {  // of two inner elements, and of the next two
      const float* row = start + offset(0, 0) + inner * WIDTH;
      even[0] = row + (line ^ inner * 2), even[1] = row + (line ^ inner * 2 ^ 16);
    }
  }
  // Element `j` of the four, of line `i`.
  METHOD const float* find(int k0, int i, int j) const {
    if constexpr (MATRIX && ALONG == 1)
      return (k0 / 16 % 2 ? odd[i] : even[i]) + k0 + j;
    else if constexpr (MATRIX)
      return even[j / 2] + (k0 + j) * WIDTH + i;
    else
      return start + swizzled<WIDTH>(offset(line + i, k0 + inner + j));
  }
};

template <int ALONG, int LINES, int INNER, class From>
DEVICE void load_fragment(float (&to)[2][4], const From& from, int k0) {
  constexpr bool ALL_K = INNER % 16 == 0, ALL_LINES = LINES % 16 == 0;
  const int line = from.line, k = k0 + from.inner;
  if constexpr (ALONG == 1 && ALL_K) {
#pragma unroll
    for (int i = 0; i < 2; i++)
      if (ALL_LINES || line + i < LINES)
        load_lanes(to[i], from.find(k0, i, 0));
      else
        for (int j = 0; j < 4; j++) to[i][j] = 0.0f;
  } else if constexpr (ALONG == 2 && LINES % 2 == 0) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
      float pair[2] = {0.0f, 0.0f};
      if ((ALL_LINES || line < LINES) && (ALL_K || k + j < INNER))
        load_lanes(pair, from.find(k0, 0, j));
      to[0][j] = pair[0], to[1][j] = pair[1];
    }
  } else {
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const bool exists =
            (ALL_LINES || line + i < LINES) && (ALL_K || k + j < INNER);
        to[i][j] = exists ? *from.find(k0, i, j) : 0.0f;
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
#pragma unroll 1
  for (int tile = block * WARPS + THREAD / 32; tile < S::BATCHES * DOWN * ACROSS;
       tile += blocks * WARPS) {
    const int b = tile / (DOWN * ACROSS), m0 = tile / ACROSS % DOWN * 16;
    const int n0 = tile % ACROSS * S::BN;
    const auto left_offset = [=](int m, int k) {
      return S::left_batch(b) + S::left_row(m) + S::left_inner(k) + S::LEFT_START;
    };
    const auto right_offset = [=](int n, int k) {
      return S::right_batch(b) + S::right_column(n) + S::right_inner(k) +
             S::RIGHT_START;
    };
    typedef Operand<S::LEFT_ALONG, S::LEFT_SWIZZLED, S::LEFT_MATRIX,
                    decltype(left_offset)>
        Left;
    typedef Operand<S::RIGHT_ALONG, S::RIGHT_SWIZZLED, S::RIGHT_MATRIX,
                    decltype(right_offset)>
        Right;
    const Left rows_of(left, left_offset, m0 + mine.row, mine.inner);
    const Right columns_of[2] = {
        Right(right, right_offset, n0 + mine.row, mine.inner),
        Right(right, right_offset, n0 + (HALVES - 1) * 16 + mine.row, mine.inner)};
    float sums[HALVES][2][4] = {};  // of even columns, and of odd ones
#pragma unroll 4
    for (int k0 = 0; k0 < S::K; k0 += 16) {
      float rows[2][4], columns[HALVES][2][4];
      load_fragment<S::LEFT_ALONG, S::M, S::K>(rows, rows_of, k0);
#pragma unroll
      for (int half = 0; half < HALVES; half++)
        load_fragment<S::RIGHT_ALONG, S::N, S::K>(columns[half], columns_of[half], k0);
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
    // A thread has four neighbours of two rows, or twice that.
#pragma unroll
    for (int half = 0; half < HALVES; half++)
#pragma unroll
      for (int first = 0; first < 4; first += S::LANES) {
        int m[2], n[2];
        bool exists[2];
        float value[2][S::LANES];
#pragma unroll
        for (int i = 0; i < 2; i++) {
          m[i] = m0 + mine.row + i, n[i] = n0 + half * 16 + mine.column + first;
          exists[i] =
              (S::M % 16 == 0 || m[i] < S::M) && (S::N % S::BN == 0 || n[i] < S::N);
          if (!exists[i]) m[i] = n[i] = 0;  // an element that can be read
#pragma unroll
          for (int lane = 0; lane < S::LANES; lane++)
            value[i][lane] = sums[half][(first + lane) % 2][i * 2 + (first + lane) / 2];
        }
        store(0, b, m, n, exists, value);
      }
  }
}
