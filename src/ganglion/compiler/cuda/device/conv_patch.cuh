#include "tensor_cores.cuh"
// A patch of some rows of some images, of all their channels or of BM of them: what
// lies side by side in a row of an image is one line of memory.
template <class S, int CHANNELS, int LINE, int HEIGHT, int WIDTH>
DEVICE void copy_patch(typename S::Left* to, const typename S::Left* left, int image0,
                       int y0, int channel0) {
  constexpr int V = 16 / (int)sizeof(typename S::Left), parts = CHANNELS / V;
  constexpr int REAL = S::ACROSS_X + S::KX - 1;
  constexpr unsigned ROW = WIDTH * parts;
  constexpr int COUNT = S::TILE_IMAGES * HEIGHT * (int)ROW;
#pragma unroll 4
  for (int e = THREAD; e < COUNT; e += THREADS) {
    const unsigned row = (unsigned)e / ROW, within = (unsigned)e % ROW;
    const unsigned pixel = within / parts, part = within % parts;
    const int image = image0 + (S::TILE_IMAGES == 1 ? 0 : row / HEIGHT);
    const int y = y0 + (int)(S::TILE_IMAGES == 1 ? row : row % HEIGHT);
    const int channel = channel0 + (int)part * V;
    copy_async<16, true>(
        to + (unsigned)e / parts * LINE + part * V,
        left + (typename S::Offset)image * S::IMAGE_STEP + y * S::Y_STEP +
            (int)pixel * S::CHANNELS + channel,
        image < S::IMAGES && y < S::Y + S::KY - 1 && channel < S::CHANNELS &&
            (WIDTH == REAL || (int)pixel < REAL));
  }
}
