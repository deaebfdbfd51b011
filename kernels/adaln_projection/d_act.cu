// d_act[t, k]: n in chunks of 64, each an ascending fma chain from 0; chunk sums added in ascending order.
//
// Three ways, which give the same bits: few rows stream slices of the weight, tens keep the float32 units busy
// with chunks side by side, thousands are a matrix product.  Rows are independent, so a call may take two of them.
//
// The total starts at -0, to which adding the first chunk's sum gives that sum, whatever its sign.  Absent n have a
// grad of -0 and a weight of +0, absent chunks a sum of -0: neither changes a bit.
#include "common.cuh"

#include "d_act_fold.cuh"
#include "d_act_slices.cuh"
#include "d_act_tiles.cuh"

namespace adaln {
namespace {

constexpr int64_t kMostRowsInPasses = 32;

int in_passes(const uint16_t *grad, const uint16_t *weight, float *d_act, int64_t T, int64_t N, int64_t K,
              cudaStream_t stream) {
    for (int64_t t = 0; t < T; t += slices::kMostRows) {
        const int64_t rows = T - t < slices::kMostRows ? T - t : slices::kMostRows;
        const auto launch = rows == 1   ? launch_slices<1>
                            : rows <= 2 ? launch_slices<2>
                            : rows <= 4 ? launch_slices<4>
                                        : launch_slices<slices::kMostRows>;
        if (int error = launch(grad + t * N, weight, d_act + t * K, int(rows), int(N), int(K), stream)) return error;
    }
    return 0;
}

// Rows that the tiles take: those that fill the multiprocessors, and the rest too where folding takes longer.  None
// where a tile does not fit, before Hopper.
int64_t tiled_rows(int64_t T, int64_t K, const Device &device) {
    constexpr int64_t kFoldsPerTile = 12;  // blocks that fold, one after another, in the time of a tile
    if (int64_t(sizeof(tiles::Tile)) > device.shared_bytes) return 0;
    const int64_t columns = ceil_div<int64_t>(K, tiles::kColumns), at_once = device.multiprocessors / columns;
    const int64_t wave = tiles::kRows * (at_once < 1 ? 1 : at_once), whole = T / wave * wave;
    const int64_t folds = ceil_div(ceil_div<int64_t>(T - whole, fold::kRows) * columns, int64_t(device.multiprocessors));
    return folds > kFoldsPerTile ? T : whole;
}

}  // namespace
}  // namespace adaln

extern "C" int adaln_cuda_d_act(const void *grad_table, const void *weight_bf16, float *d_act, int64_t T,
                                int64_t N, int64_t K, void *stream_pointer) {
    using namespace adaln;
    if (bad_sizes(T, N, K)) return ADALN_BAD_ARGUMENT;
    const uint16_t *grad = static_cast<const uint16_t *>(grad_table);
    const uint16_t *weight = static_cast<const uint16_t *>(weight_bf16);
    const cudaStream_t cuda_stream = static_cast<cudaStream_t>(stream_pointer);
    if (T <= kMostRowsInPasses || K < fold::kColumns) return in_passes(grad, weight, d_act, T, N, K, cuda_stream);
    Device device;
    if (int error = find_device(device)) return error;
    const int64_t tiled = tiled_rows(T, K, device);
    if (tiled > 0)
        if (int error = launch_tiles(grad, weight, d_act, int(tiled), int(N), int(K), cuda_stream)) return error;
    if (tiled == T) return 0;
    return launch_fold(grad + tiled * N, weight, d_act + tiled * K, int(T - tiled), int(N), int(K), cuda_stream);
}
