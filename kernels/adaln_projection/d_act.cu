// d_act[t, k]: n in chunks of 64, each an ascending fma chain from 0; chunk sums added in ascending order.
//
// Few rows: bound by reading the weight, so one block per chunk; the chunk sums go to scratch and a second kernel adds
// them in order.  Eight rows at most share a pass over the weight, so scratch stays small whatever T is.
// Many rows: a block owns 16 rows x 84 columns of d_act and walks all of N.  24 groups of 21 threads take 24
// consecutive chunks at once, a thread 16 rows x 4 columns of one chunk; the 24 chunk sums meet in shared memory and
// are added in order, so no chunk sum leaves the multiprocessor.
// Absent n count as zeros: fma(0, 0, sum) is sum, which is never -0, and adding a chunk sum of +0 changes nothing.
#include "common.cuh"

namespace adaln {
namespace {

constexpr int kChunk = 64;

// ---- few rows -------------------------------------------------------------------------------------------------------

constexpr int kPassRows = 8;
constexpr int64_t kMostRowsInPasses = 24;

template <int kRows>
__global__ void chunk_sums(const uint16_t *__restrict__ grad, const uint16_t *__restrict__ weight,
                           float *__restrict__ sums, int rows, int64_t N, int64_t K) {
    __shared__ float g[kChunk][kRows];
    const int64_t n0 = int64_t(blockIdx.x) * kChunk;
    const int count = int(min(int64_t(kChunk), N - n0));
    for (int i = threadIdx.x; i < kChunk * kRows; i += blockDim.x) {
        const int t = i / kChunk, n = i % kChunk;
        g[n][t] = t < rows && n < count ? bf16_value(__ldg(grad + t * N + n0 + n)) : 0.0f;
    }
    __syncthreads();
    const int64_t k = 8 * (int64_t(blockIdx.y) * blockDim.x + threadIdx.x);
    if (k >= K) return;

    constexpr int kBatch = 8;
    const uint16_t *w = weight + n0 * K + k;
    float sum[kRows][8] = {};
    for (int n = 0; n < kChunk; n += kBatch) {
        uint4 bits[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) bits[i] = n + i < count ? load_once(w + (n + i) * K) : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            float v[8];
            unpack_bf16x8(bits[i], v);
#pragma unroll
            for (int t = 0; t < kRows; ++t)
#pragma unroll
                for (int j = 0; j < 8; ++j) sum[t][j] = __fmaf_rn(g[n + i][t], v[j], sum[t][j]);
        }
    }
#pragma unroll
    for (int t = 0; t < kRows; ++t) {
        if (t >= rows) break;
        float4 *out = reinterpret_cast<float4 *>(sums + (int64_t(blockIdx.x) * rows + t) * K + k);
        out[0] = make_float4(sum[t][0], sum[t][1], sum[t][2], sum[t][3]);
        out[1] = make_float4(sum[t][4], sum[t][5], sum[t][6], sum[t][7]);
    }
}

constexpr int kFoldWarps = 8, kFoldLoads = 16, kFoldRows = kFoldWarps * kFoldLoads;

// A block adds 32 of the `outputs` columns of sums [chunks, outputs]: every warp fetches, the first one adds.
__global__ void __launch_bounds__(32 * kFoldWarps)
    fold(const float *__restrict__ sums, float *__restrict__ d_act, int64_t chunks, int64_t outputs) {
    __shared__ float tile[kFoldRows][32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int64_t output = int64_t(blockIdx.x) * 32 + lane;
    float next[kFoldLoads], total = 0.0f;
    const auto fetch = [&](int64_t chunk0) {
#pragma unroll
        for (int i = 0; i < kFoldLoads; ++i) {
            const int64_t chunk = chunk0 + i * kFoldWarps + warp;
            next[i] = chunk < chunks && output < outputs ? __ldg(sums + chunk * outputs + output) : 0.0f;
        }
    };
    fetch(0);
    for (int64_t chunk0 = 0; chunk0 < chunks; chunk0 += kFoldRows) {
#pragma unroll
        for (int i = 0; i < kFoldLoads; ++i) tile[i * kFoldWarps + warp][lane] = next[i];
        __syncthreads();
        fetch(chunk0 + kFoldRows);
        if (warp == 0)
#pragma unroll 32
            for (int i = 0; i < kFoldRows; ++i) total = __fadd_rn(total, tile[i][lane]);
        __syncthreads();
    }
    if (warp == 0 && output < outputs) d_act[output] = total;
}

template <int kRows>
int launch_pass(const uint16_t *grad, const uint16_t *weight, float *d_act, float *sums, int64_t rows, int64_t N,
                int64_t K, cudaStream_t stream) {
    const int64_t columns = ceil_div<int64_t>(K / 8, 384), chunks = ceil_div<int64_t>(N, kChunk);
    const int threads = int(32 * ceil_div<int64_t>(K / 8, 32 * columns));
    chunk_sums<kRows><<<dim3(unsigned(chunks), unsigned(columns)), threads, 0, stream>>>(grad, weight, sums, int(rows),
                                                                                        N, K);
    fold<<<unsigned(ceil_div<int64_t>(rows * K, 32)), 32 * kFoldWarps, 0, stream>>>(sums, d_act, chunks, rows * K);
    return cudaGetLastError();
}

// ---- many rows ------------------------------------------------------------------------------------------------------

constexpr int kThreads = 512, kGroups = 24, kMembers = 21;
constexpr int kTileRows = 16, kTileColumns = 4 * kMembers, kTile = kTileRows * kTileColumns;
constexpr int kStage = 16;                               // n of every chunk whose grad is in shared memory at a time
constexpr int kGroupGrad = kStage * kTileRows + 4;       // floats; the 4 keep two groups of a warp on different banks
constexpr int kPieces = kGroups * kTileRows * kStage / 8;  // 16-byte pieces of grad per stage
constexpr int kPieceLoads = ceil_div(kPieces, kThreads);
constexpr int kBatch = 4;                                // n of weight that a thread fetches ahead

struct Shared {
    float grad[2][kGroups * kGroupGrad];
    float sums[kGroups][kTile];
};

struct GradStage {
    const uint16_t *grad;
    int64_t t0, T, N;
    bool aligned;
    uint4 pieces[kPieceLoads];

    // Piece p: group p / 32, half of the stage p / 16 % 2, row p % 16.
    __device__ void fetch(int64_t round, int stage) {
#pragma unroll
        for (int i = 0; i < kPieceLoads; ++i) {
            const int p = threadIdx.x + i * kThreads;
            const int64_t t = t0 + p % kTileRows;
            const int64_t n = (round * kGroups + p / 32) * kChunk + stage * kStage + p / 16 % 2 * 8;
            const bool present = p < kPieces && t < T;
            pieces[i] = present ? load_bf16x8(grad + t * N, n, N, aligned) : make_uint4(0, 0, 0, 0);
        }
    }

    __device__ void store(float *shared) const {
#pragma unroll
        for (int i = 0; i < kPieceLoads; ++i) {
            const int p = threadIdx.x + i * kThreads;
            if (p >= kPieces) break;
            float v[8];
            unpack_bf16x8(pieces[i], v);
            float *out = shared + p / 32 * kGroupGrad + p / 16 % 2 * 8 * kTileRows + p % kTileRows;
#pragma unroll
            for (int j = 0; j < 8; ++j) out[j * kTileRows] = v[j];
        }
    }
};

__global__ void __launch_bounds__(kThreads, 1)
    fused_fold(const uint16_t *__restrict__ grad, const uint16_t *__restrict__ weight, float *__restrict__ d_act,
               int64_t T, int64_t N, int64_t K) {
    extern __shared__ __align__(16) char shared_bytes[];
    Shared &shared = *reinterpret_cast<Shared *>(shared_bytes);
    const int64_t column_tiles = ceil_div<int64_t>(K, kTileColumns);
    const int64_t t0 = blockIdx.x / column_tiles * kTileRows, k0 = blockIdx.x % column_tiles * kTileColumns;
    const int group = min(int(threadIdx.x) / kMembers, kGroups - 1), member = threadIdx.x % kMembers;
    const bool working = threadIdx.x < kGroups * kMembers;
    const bool in_row = working && k0 + 4 * member < K;
    const uint16_t *w_column = weight + k0 + 4 * member;

    uint2 next[kBatch];
    const auto fetch_weight = [&](int64_t n0) {
#pragma unroll
        for (int i = 0; i < kBatch; ++i)
            next[i] = in_row && n0 + i < N ? __ldg(reinterpret_cast<const uint2 *>(w_column + (n0 + i) * K))
                                           : make_uint2(0, 0);
    };

    const int64_t rounds = ceil_div<int64_t>(N, kGroups * kChunk);
    GradStage staged{grad, t0, T, N, N % 8 == 0, {}};
    staged.fetch(0, 0);
    staged.store(shared.grad[0]);
    fetch_weight(int64_t(group) * kChunk);
    __syncthreads();
    float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (int64_t round = 0; round < rounds; ++round) {
        const int64_t n0 = (round * kGroups + group) * kChunk;
        float sum[kTileRows][4] = {};
#pragma unroll 1
        for (int stage = 0; stage < kChunk / kStage; ++stage) {
            const bool last = stage == kChunk / kStage - 1;
            staged.fetch(last ? round + 1 : round, last ? 0 : stage + 1);
            const float *g = shared.grad[stage % 2] + group * kGroupGrad;
#pragma unroll
            for (int batch = 0; batch < kStage; batch += kBatch) {
                uint2 bits[kBatch];
#pragma unroll
                for (int i = 0; i < kBatch; ++i) bits[i] = next[i];
                const bool wrap = batch + kBatch == kStage && last;
                fetch_weight(wrap ? n0 + kGroups * kChunk : n0 + stage * kStage + batch + kBatch);
#pragma unroll
                for (int i = 0; i < kBatch; ++i) {
                    const float w[4] = {bf16_low(bits[i].x), bf16_high(bits[i].x), bf16_low(bits[i].y),
                                        bf16_high(bits[i].y)};
#pragma unroll
                    for (int t = 0; t < kTileRows; t += 4) {
                        const float4 v = *reinterpret_cast<const float4 *>(g + (batch + i) * kTileRows + t);
                        const float x[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
                        for (int r = 0; r < 4; ++r)
#pragma unroll
                            for (int j = 0; j < 4; ++j) sum[t + r][j] = __fmaf_rn(x[r], w[j], sum[t + r][j]);
                    }
                }
            }
            staged.store(shared.grad[(stage + 1) % 2]);
            __syncthreads();
        }
        if (working)
#pragma unroll
            for (int t = 0; t < kTileRows; ++t)
                *reinterpret_cast<float4 *>(&shared.sums[group][t * kTileColumns + 4 * member]) =
                    make_float4(sum[t][0], sum[t][1], sum[t][2], sum[t][3]);
        __syncthreads();
        if (threadIdx.x < kTile / 4)
#pragma unroll
            for (int c = 0; c < kGroups; ++c) {
                const float4 v = *reinterpret_cast<const float4 *>(&shared.sums[c][4 * threadIdx.x]);
                total = make_float4(__fadd_rn(total.x, v.x), __fadd_rn(total.y, v.y), __fadd_rn(total.z, v.z),
                                    __fadd_rn(total.w, v.w));
            }
    }
    const int64_t t = t0 + 4 * threadIdx.x / kTileColumns, k = k0 + 4 * threadIdx.x % kTileColumns;
    if (threadIdx.x < kTile / 4 && t < T && k < K) *reinterpret_cast<float4 *>(d_act + t * K + k) = total;
}

}  // namespace
}  // namespace adaln

extern "C" int64_t adaln_cuda_d_act_scratch_bytes(int64_t T, int64_t N, int64_t K) {
    using namespace adaln;
    if (bad_sizes(T, N, K) || T > kMostRowsInPasses) return 0;
    const int64_t rows = T < kPassRows ? T : kPassRows;
    return ceil_div<int64_t>(N, kChunk) * rows * K * int64_t(sizeof(float));
}

extern "C" int adaln_cuda_d_act(const void *grad_table, const void *weight_bf16, float *d_act, void *scratch,
                                int64_t T, int64_t N, int64_t K, void *stream_pointer) {
    using namespace adaln;
    if (bad_sizes(T, N, K)) return ADALN_BAD_ARGUMENT;
    const uint16_t *grad = static_cast<const uint16_t *>(grad_table);
    const uint16_t *weight = static_cast<const uint16_t *>(weight_bf16);
    float *sums = static_cast<float *>(scratch);
    const cudaStream_t stream = static_cast<cudaStream_t>(stream_pointer);
    if (T > kMostRowsInPasses) {
        const cudaError_t error = cudaFuncSetAttribute(fused_fold, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                       int(sizeof(Shared)));
        if (error != cudaSuccess) return error;
        const int64_t blocks = ceil_div<int64_t>(T, kTileRows) * ceil_div<int64_t>(K, kTileColumns);
        fused_fold<<<unsigned(blocks), kThreads, sizeof(Shared), stream>>>(grad, weight, d_act, T, N, K);
        return cudaGetLastError();
    }
    for (int64_t t = 0; t < T; t += kPassRows) {
        const int64_t rows = T - t < kPassRows ? T - t : kPassRows;
        const auto pass = rows <= 1 ? launch_pass<1> : rows <= 4 ? launch_pass<4> : launch_pass<kPassRows>;
        const int error = pass(grad + t * N, weight, d_act + t * K, sums, rows, N, K, stream);
        if (error != cudaSuccess) return error;
    }
    return 0;
}
