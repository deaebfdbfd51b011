// d_weight[n, k] = sum over t of grad[t, n] * act[t, k], d_bias[n] = sum over t of grad[t, n]: one chain per output, t
// ascending from 0, rounded once to bf16.  Products of two bf16 are exact in float32, so each fma rounds once.
//
// Few rows: an outer product, bound by writing d_weight.  A thread keeps 8 columns of act in registers and walks down
// rows of d_weight.  Many rows: a float32 matrix product of 128 x 128 tiles that walks t once, without splitting it; a
// thread owns 8 x 8 outputs.  Rows beyond T have a grad of -0 and an act of +0, which leave a chain as it is.
#include "common.cuh"

namespace adaln {
namespace {

// ---- few rows -------------------------------------------------------------------------------------------------------

constexpr int kSlab = 64;  // rows of d_weight per block

template <int kRows>
__global__ void outer_product(const uint16_t *__restrict__ grad, const uint16_t *__restrict__ act,
                              uint16_t *__restrict__ d_weight, uint16_t *__restrict__ d_bias, int T, int64_t N,
                              int64_t K) {
    __shared__ float g[kSlab][kRows];
    const int64_t n0 = int64_t(blockIdx.x) * kSlab;
    const int rows = int(min(int64_t(kSlab), N - n0));
    for (int i = threadIdx.x; i < kSlab * kRows; i += blockDim.x) {
        const int t = i / kSlab, n = i % kSlab;
        g[n][t] = t < T && n < rows ? bf16_value(__ldg(grad + t * N + n0 + n)) : -0.0f;
    }
    __syncthreads();

    if (blockIdx.y == 0 && threadIdx.x < rows) {
        float sum = 0.0f;
        for (int t = 0; t < T; ++t) sum = __fadd_rn(sum, g[threadIdx.x][t]);
        d_bias[n0 + threadIdx.x] = uint16_t(pack_bf16(sum, 0.0f));
    }

    const int64_t k = 8 * (int64_t(blockIdx.y) * blockDim.x + threadIdx.x);
    if (k >= K) return;
    float a[kRows][8];
#pragma unroll
    for (int t = 0; t < kRows; ++t)
        unpack_bf16x8(t < T ? load_bf16x8<true>(act + t * K, int(k), int(K)) : make_uint4(0, 0, 0, 0), a[t]);

    uint16_t *out = d_weight + n0 * K + k;
#pragma unroll 4
    for (int n = 0; n < rows; ++n, out += K) {
        float sum[8] = {};
#pragma unroll
        for (int t = 0; t < kRows; ++t)
#pragma unroll
            for (int i = 0; i < 8; ++i) sum[i] = __fmaf_rn(g[n][t], a[t][i], sum[i]);
        const uint4 packed = make_uint4(pack_bf16(sum[0], sum[1]), pack_bf16(sum[2], sum[3]),
                                        pack_bf16(sum[4], sum[5]), pack_bf16(sum[6], sum[7]));
        __stcs(reinterpret_cast<uint4 *>(out), packed);
    }
}

template <int kRows>
int launch_outer_product(const uint16_t *grad, const uint16_t *act, uint16_t *d_weight, uint16_t *d_bias, int64_t T,
                         int64_t N, int64_t K, cudaStream_t stream) {
    const int64_t columns = ceil_div<int64_t>(K / 8, 384);
    const int threads = int(32 * ceil_div<int64_t>(K / 8, 32 * columns));
    const dim3 blocks(unsigned(ceil_div<int64_t>(N, kSlab)), unsigned(columns));
    outer_product<kRows><<<blocks, threads < kSlab ? kSlab : threads, 0, stream>>>(grad, act, d_weight, d_bias, int(T),
                                                                                  N, K);
    return cudaGetLastError();
}

// ---- many rows ------------------------------------------------------------------------------------------------------

constexpr int kTile = 128;  // rows and columns of d_weight per block
constexpr int kDepth = 16;  // rows of grad and act per stage
constexpr int kOwn = 8;  // rows and columns of d_weight per thread: two pieces of four, 16 rows or 32 columns apart
constexpr int kThreads = (kTile / kOwn) * (kTile / kOwn);
constexpr int kPieces = kDepth * kTile / 8 / kThreads;  // 16-byte pieces of each operand per thread and stage

// This thread's pieces of the kDepth x kTile tiles of a [T, columns] matrix, one tile below the other.
template <bool kAligned>
struct Pieces {
    const uint16_t *next;
    int t, column, T, columns;
    uint4 bits[kPieces];

    __device__ Pieces(const uint16_t *matrix, int column0, int T, int columns)
        : t(threadIdx.x / 16), column(column0 + threadIdx.x % 16 * 8), T(T), columns(columns) {
        // Columns beyond the end read the last ones; their results are not stored.
        if (kAligned) column = min(column, columns - 8);
        next = matrix + int64_t(t) * columns + column;
    }

    // Fetches the next tile; `absent` fills rows beyond T.
    __device__ void fetch(uint32_t absent) {
#pragma unroll
        for (int i = 0; i < kPieces; ++i, t += kThreads / 16, next += kThreads / 16 * int64_t(columns)) {
            if (t >= T)
                bits[i] = make_uint4(absent, absent, absent, absent);
            else if (kAligned)
                bits[i] = __ldg(reinterpret_cast<const uint4 *>(next));
            else
                bits[i] = load_bf16x8<kAligned>(next - column, column, columns);
        }
    }

    __device__ void store(float (&tile)[kDepth][kTile]) const {
#pragma unroll
        for (int i = 0; i < kPieces; ++i)
            store_floats(&tile[threadIdx.x / 16 + i * (kThreads / 16)][threadIdx.x % 16 * 8], bits[i]);
    }
};

// Two pieces of four of a row of a tile.
__device__ inline void load_own(float (&v)[kOwn], const float *row, int apart) {
    *reinterpret_cast<float4 *>(v) = *reinterpret_cast<const float4 *>(row);
    *reinterpret_cast<float4 *>(v + 4) = *reinterpret_cast<const float4 *>(row + apart);
}

template <bool kAligned>
__global__ void __launch_bounds__(kThreads, 2)
    matrix_product(const uint16_t *__restrict__ grad, const uint16_t *__restrict__ act,
                   uint16_t *__restrict__ d_weight, uint16_t *__restrict__ d_bias, int T, int N, int K) {
    __shared__ float g[2][kDepth][kTile], a[2][kDepth][kTile];
    const int k_tiles = ceil_div(K, kTile);
    const int n0 = blockIdx.x / k_tiles * kTile, k0 = blockIdx.x % k_tiles * kTile;
    const bool has_bias = k0 == 0 && threadIdx.x < kTile;
    // Warps in two columns of 64 k, each 32 n high; lanes as 4 n x 8 k.
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int n = warp / 2 * 32 + lane / 8 * 4, k = warp % 2 * 64 + lane % 8 * 4;

    float sum[kOwn][kOwn] = {}, bias_sum = 0.0f;
    Pieces<kAligned> next_g(grad, n0, T, N);
    Pieces<true> next_a(act, k0, T, K);
    // A stage's tiles go to shared memory in the middle of the stage before, so that the barrier waits for no store.
    const auto fetch = [&] { next_g.fetch(kAbsentPair), next_a.fetch(0); };
    const auto store = [&](int buffer) { next_g.store(g[buffer]), next_a.store(a[buffer]); };
    fetch();
    store(0);
    fetch();
    int buffer = 0;
    for (int t0 = 0; t0 < T; t0 += kDepth, buffer ^= 1) {
        __syncthreads();
#pragma unroll
        for (int t = 0; t < kDepth; ++t) {
            if (t == kDepth / 2) store(buffer ^ 1), fetch();
            float x[kOwn], y[kOwn];
            load_own(x, &g[buffer][t][n], 16);
            load_own(y, &a[buffer][t][k], 32);
#pragma unroll
            for (int i = 0; i < kOwn; ++i)
#pragma unroll
                for (int j = 0; j < kOwn; ++j) sum[i][j] = __fmaf_rn(x[i], y[j], sum[i][j]);
        }
        if (has_bias)
#pragma unroll
            for (int t = 0; t < kDepth; ++t) bias_sum = __fadd_rn(bias_sum, g[buffer][t][threadIdx.x]);
    }

    if (has_bias && n0 + threadIdx.x < N) d_bias[n0 + threadIdx.x] = uint16_t(pack_bf16(bias_sum, 0.0f));
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
        const int row = n0 + n + i % 4 + i / 4 * 16;
        if (row >= N) continue;
#pragma unroll
        for (int j = 0; j < kOwn; j += 4) {
            const int column = k0 + k + j / 4 * 32;
            if (column >= K) continue;
            *reinterpret_cast<uint2 *>(d_weight + int64_t(row) * K + column) =
                make_uint2(pack_bf16(sum[i][j], sum[i][j + 1]), pack_bf16(sum[i][j + 2], sum[i][j + 3]));
        }
    }
}

}  // namespace
}  // namespace adaln

extern "C" int adaln_cuda_d_weight_bias(const void *grad_table, const void *act_bf16, void *d_weight_bf16,
                                        void *d_bias_bf16, int64_t T, int64_t N, int64_t K, void *stream_pointer) {
    using namespace adaln;
    if (bad_sizes(T, N, K)) return ADALN_BAD_ARGUMENT;
    const uint16_t *grad = static_cast<const uint16_t *>(grad_table), *act = static_cast<const uint16_t *>(act_bf16);
    uint16_t *d_weight = static_cast<uint16_t *>(d_weight_bf16), *d_bias = static_cast<uint16_t *>(d_bias_bf16);
    const cudaStream_t stream = static_cast<cudaStream_t>(stream_pointer);
    if (T <= 1) return launch_outer_product<1>(grad, act, d_weight, d_bias, T, N, K, stream);
    if (T <= 4) return launch_outer_product<4>(grad, act, d_weight, d_bias, T, N, K, stream);
    if (T <= 8) return launch_outer_product<8>(grad, act, d_weight, d_bias, T, N, K, stream);
    const int64_t blocks = ceil_div<int64_t>(N, kTile) * ceil_div<int64_t>(K, kTile);
    const auto product = N % 8 == 0 ? matrix_product<true> : matrix_product<false>;
    product<<<unsigned(blocks), kThreads, 0, stream>>>(grad, act, d_weight, d_bias, int(T), int(N), int(K));
    return cudaGetLastError();
}
