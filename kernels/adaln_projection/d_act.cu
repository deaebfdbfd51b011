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

constexpr int kBatch = 4, kBatches = 5;  // rows per group of copies, groups in flight

// Blocks take chunks in turn.  A thread owns 8 columns: it copies its own pieces of the coming rows of the weight to its
// own places in shared memory, so it waits for nobody but itself.
template <int kRows>
__global__ void chunk_sums(const uint16_t *__restrict__ grad, const uint16_t *__restrict__ weight,
                           float *__restrict__ sums, int rows, int N, int K) {
    extern __shared__ uint4 ring[];  // [kBatches][kBatch][blockDim.x]
    __shared__ float g[2][kChunk][kRows];
    const int chunks = ceil_div(N, kChunk);
    const int k = 8 * (blockIdx.y * blockDim.x + threadIdx.x);
    const uint16_t *column = weight + (k < K ? k : 0);

    int next_n = int(blockIdx.x) * kChunk, slot = 0;
    const auto fetch = [&] {
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            const bool present = next_n + i < N;
            copy_async(&ring[(slot * kBatch + i) * blockDim.x + threadIdx.x],
                       column + (present ? int64_t(next_n + i) * K : 0), present);
        }
        commit_copies();
        slot = slot == kBatches - 1 ? 0 : slot + 1;
        next_n += kBatch;
        if (next_n % kChunk == 0) next_n += (gridDim.x - 1) * kChunk;
    };
    for (int i = 0; i < kBatches - 1; ++i) fetch();

    int full = 0, parity = 0;
    for (int chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x, parity ^= 1) {
        for (int i = threadIdx.x; i < kChunk * kRows; i += blockDim.x) {
            const int t = i / kChunk, n = chunk * kChunk + i % kChunk;
            g[parity][i % kChunk][t] = t < rows && n < N ? bf16_value(__ldg(grad + int64_t(t) * N + n)) : 0.0f;
        }
        __syncthreads();
        float sum[kRows][8] = {};
        for (int n = 0; n < kChunk; n += kBatch) {
            wait_copies<kBatches - 2>();
            uint4 bits[kBatch];
#pragma unroll
            for (int i = 0; i < kBatch; ++i) bits[i] = ring[(full * kBatch + i) * blockDim.x + threadIdx.x];
            full = full == kBatches - 1 ? 0 : full + 1;
            fetch();
#pragma unroll
            for (int i = 0; i < kBatch; ++i) {
                float v[8];
                unpack_bf16x8(bits[i], v);
#pragma unroll
                for (int t = 0; t < kRows; ++t)
#pragma unroll
                    for (int j = 0; j < 8; ++j) sum[t][j] = __fmaf_rn(g[parity][n + i][t], v[j], sum[t][j]);
            }
        }
        if (k >= K) continue;
#pragma unroll
        for (int t = 0; t < kRows; ++t) {
            if (t >= rows) break;
            float4 *out = reinterpret_cast<float4 *>(sums + (int64_t(chunk) * rows + t) * K + k);
            out[0] = make_float4(sum[t][0], sum[t][1], sum[t][2], sum[t][3]);
            out[1] = make_float4(sum[t][4], sum[t][5], sum[t][6], sum[t][7]);
        }
    }
}

constexpr int kFoldThreads = 256, kFoldOutputs = 32;
constexpr int kFoldRows = 2 * kFoldThreads / (kFoldOutputs / 4), kFoldStages = 10;

// A block adds 32 of the `outputs` columns of sums [chunks, outputs]: all threads fetch, one warp adds.
__global__ void __launch_bounds__(kFoldThreads)
    fold(const float *__restrict__ sums, float *__restrict__ d_act, int chunks, int64_t outputs) {
    extern __shared__ float stages[];  // [kFoldStages][kFoldRows][kFoldOutputs]
    const int64_t first = int64_t(blockIdx.x) * kFoldOutputs;
    const int row = threadIdx.x / 8, column = threadIdx.x % 8 * 4;
    const bool in_row = first + column < outputs;
    const float *source = sums + (in_row ? first + column : 0);

    const auto fetch = [&](int stage) {
#pragma unroll
        for (int half = 0; half < kFoldRows; half += kFoldRows / 2) {
            const int chunk = stage * kFoldRows + half + row;
            const bool present = chunk < chunks && in_row;
            copy_async(&stages[((stage % kFoldStages) * kFoldRows + half + row) * kFoldOutputs + column],
                       source + (present ? chunk * outputs : 0), present);
        }
        commit_copies();
    };
    for (int stage = 0; stage < kFoldStages - 1; ++stage) fetch(stage);
    float total = 0.0f;
    for (int stage = 0; stage * kFoldRows < chunks; ++stage) {
        wait_copies<kFoldStages - 2>();
        __syncthreads();
        fetch(stage + kFoldStages - 1);
        const float *values = &stages[(stage % kFoldStages) * kFoldRows * kFoldOutputs + threadIdx.x];
        if (threadIdx.x < kFoldOutputs)
#pragma unroll
            for (int i = 0; i < kFoldRows; ++i) total = __fadd_rn(total, values[i * kFoldOutputs]);
    }
    if (threadIdx.x < kFoldOutputs && first + threadIdx.x < outputs) d_act[first + threadIdx.x] = total;
}

template <int kRows>
int launch_pass(const uint16_t *grad, const uint16_t *weight, float *d_act, float *sums, int rows, int N, int K,
                cudaStream_t stream) {
    Device device;
    if (int error = find_device(device)) return error;
    const int parts = ceil_div(K / 8, 384), chunks = ceil_div(N, kChunk);
    const int threads = 32 * ceil_div(K / 8, 32 * parts), shared = kBatches * kBatch * threads * int(sizeof(uint4));
    const int fold_shared = kFoldStages * kFoldRows * kFoldOutputs * int(sizeof(float));
    if (int error = allow_shared(chunk_sums<kRows>, shared)) return error;
    if (int error = allow_shared(fold, fold_shared)) return error;
    const dim3 blocks(chunks < device.multiprocessors ? chunks : device.multiprocessors, parts);
    chunk_sums<kRows><<<blocks, threads, shared, stream>>>(grad, weight, sums, rows, N, K);
    fold<<<unsigned(ceil_div<int64_t>(int64_t(rows) * K, kFoldOutputs)), kFoldThreads, fold_shared, stream>>>(
        sums, d_act, chunks, int64_t(rows) * K);
    return cudaGetLastError();
}

// ---- many rows ------------------------------------------------------------------------------------------------------

constexpr int kThreads = 512, kGroups = 24, kMembers = 21;
constexpr int kTileRows = 16, kTileColumns = 4 * kMembers, kTile = kTileRows * kTileColumns;
constexpr int kRound = kGroups * kChunk;            // n that a block takes at once
constexpr int kStage = 16;                          // n of every chunk whose grad is in shared memory at a time
constexpr int kGroupGrad = kStage * kTileRows + 4;  // floats; the 4 keep the groups of a warp on different banks
constexpr int kAhead = 4;                           // n of the weight that a thread fetches ahead
constexpr int kPieces = 3;                          // pieces of grad per thread and stage: one row, four n
static_assert(kPieces * kThreads * 4 == kGroups * kTileRows * kStage, "the pieces make up the stage");

struct Shared {
    float grad[2][kGroups * kGroupGrad];
    float sums[kGroups][kTile];
};

// `bits` receives bf16 row[0..3], the first `count` of them; the rest become zeros.
__device__ inline uint2 load_partial(const uint16_t *row, int count) {
    uint32_t v[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = i < count ? __ldg(row + i) : 0;
    return make_uint2(v[0] | v[1] << 16, v[2] | v[3] << 16);
}

__global__ void __launch_bounds__(kThreads, 1)
    fused_fold(const uint16_t *__restrict__ grad, const uint16_t *__restrict__ weight, float *__restrict__ d_act, int T,
               int N, int K) {
    extern __shared__ __align__(16) char shared_bytes[];
    Shared &shared = *reinterpret_cast<Shared *>(shared_bytes);
    const int column_tiles = ceil_div(K, kTileColumns);
    const int t0 = blockIdx.x / column_tiles * kTileRows, k0 = blockIdx.x % column_tiles * kTileColumns;
    const int group = min(int(threadIdx.x) / kMembers, kGroups - 1), member = threadIdx.x % kMembers;
    const bool working = threadIdx.x < kGroups * kMembers;

    // Rows beyond T and columns beyond K read others' values; their results are not stored.
    const int row = threadIdx.x % kTileRows, quarter = threadIdx.x / kTileRows % 4, first_group = threadIdx.x / 64;
    int grad_n = first_group * kChunk + quarter * 4;
    const uint16_t *grad_piece = grad + int64_t(min(t0 + row, T - 1)) * N + grad_n;
    float *const grad_out = &shared.grad[0][first_group * kGroupGrad + quarter * 4 * kTileRows + row];
    int weight_n = group * kChunk;
    const uint16_t *weight_row = weight + int64_t(weight_n) * K + min(k0 + 4 * member, K - 4);

    uint2 pieces[kPieces], ahead[kAhead];
    // Fetch the next stage of grad, or the next rows of the weight; `whole`: all of the round is there.
    const auto fetch_grad = [&](bool whole, bool last) {
#pragma unroll
        for (int i = 0; i < kPieces; ++i) {
            const uint16_t *piece = grad_piece + i * (kThreads / 64) * kChunk;
            if (whole)
                pieces[i] = __ldg(reinterpret_cast<const uint2 *>(piece));
            else
                pieces[i] = load_partial(piece, N - (grad_n + i * (kThreads / 64) * kChunk));
        }
        const int step = last ? kRound - kChunk + kStage : kStage;
        grad_piece += step, grad_n += step;
    };
    const auto fetch_weight = [&](bool whole, bool last) {
#pragma unroll
        for (int i = 0; i < kAhead; ++i, weight_row += K)
            ahead[i] = whole || weight_n + i < N ? __ldg(reinterpret_cast<const uint2 *>(weight_row))
                                                 : make_uint2(0, 0);
        weight_n += kAhead;
        if (last) weight_n += kRound - kChunk, weight_row += int64_t(kRound - kChunk) * K;
    };
    const auto store_grad = [&](int buffer) {
#pragma unroll
        for (int i = 0; i < kPieces; ++i) {
            float *out = grad_out + buffer * (kGroups * kGroupGrad) + i * (kThreads / 64) * kGroupGrad;
            out[0] = bf16_low(pieces[i].x), out[kTileRows] = bf16_high(pieces[i].x);
            out[2 * kTileRows] = bf16_low(pieces[i].y), out[3 * kTileRows] = bf16_high(pieces[i].y);
        }
    };

    const int rounds = ceil_div(N, kRound), whole_rounds = N / kRound;
    const bool aligned = N % 4 == 0;
    fetch_grad(aligned && whole_rounds > 0, false);
    store_grad(0);
    fetch_weight(whole_rounds > 0, false);
    __syncthreads();
    float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (int round = 0; round < rounds; ++round) {
        float sum[kTileRows][4] = {};
#pragma unroll 1
        for (int stage = 0; stage < kChunk / kStage; ++stage) {
            // What is fetched now belongs to the next stage, which may be the next round's first.
            const bool last = stage == kChunk / kStage - 1;
            const bool whole = round < whole_rounds, next_whole = round + last < whole_rounds;
            fetch_grad(aligned && next_whole, stage == kChunk / kStage - 2);
            const float *g = shared.grad[stage % 2] + group * kGroupGrad;
#pragma unroll
            for (int n = 0; n < kStage; n += kAhead) {
                uint2 bits[kAhead];
#pragma unroll
                for (int i = 0; i < kAhead; ++i) bits[i] = ahead[i];
                const bool last_rows = n == kStage - 2 * kAhead;
                fetch_weight(n == kStage - kAhead ? next_whole : whole, last && last_rows);
#pragma unroll
                for (int i = 0; i < kAhead; ++i) {
                    const float w[4] = {bf16_low(bits[i].x), bf16_high(bits[i].x), bf16_low(bits[i].y),
                                        bf16_high(bits[i].y)};
#pragma unroll
                    for (int t = 0; t < kTileRows; t += 4) {
                        const float4 v = *reinterpret_cast<const float4 *>(g + (n + i) * kTileRows + t);
                        const float x[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
                        for (int r = 0; r < 4; ++r)
#pragma unroll
                            for (int j = 0; j < 4; ++j) sum[t + r][j] = __fmaf_rn(x[r], w[j], sum[t + r][j]);
                    }
                }
            }
            store_grad((stage + 1) % 2);
            __syncthreads();
        }
        if (working)
#pragma unroll
            for (int t = 0; t < kTileRows; ++t)
                *reinterpret_cast<float4 *>(&shared.sums[group][t * kTileColumns + 4 * member]) =
                    make_float4(sum[t][0], sum[t][1], sum[t][2], sum[t][3]);
        __syncthreads();
        if (threadIdx.x < kTile / 4)
#pragma unroll 8
            for (int c = 0; c < kGroups; ++c) {
                const float4 v = *reinterpret_cast<const float4 *>(&shared.sums[c][4 * threadIdx.x]);
                total = make_float4(__fadd_rn(total.x, v.x), __fadd_rn(total.y, v.y), __fadd_rn(total.z, v.z),
                                    __fadd_rn(total.w, v.w));
            }
    }
    const int t = t0 + 4 * threadIdx.x / kTileColumns, k = k0 + 4 * threadIdx.x % kTileColumns;
    if (threadIdx.x < kTile / 4 && t < T && k < K) *reinterpret_cast<float4 *>(d_act + int64_t(t) * K + k) = total;
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
        if (int error = allow_shared(fused_fold, sizeof(Shared))) return error;
        const int64_t blocks = ceil_div<int64_t>(T, kTileRows) * ceil_div<int64_t>(K, kTileColumns);
        fused_fold<<<unsigned(blocks), kThreads, sizeof(Shared), stream>>>(grad, weight, d_act, int(T), int(N),
                                                                                int(K));
        return cudaGetLastError();
    }
    for (int64_t t = 0; t < T; t += kPassRows) {
        const int64_t rows = T - t < kPassRows ? T - t : kPassRows;
        const auto pass = rows == 1   ? launch_pass<1>
                          : rows <= 2 ? launch_pass<2>
                          : rows <= 4 ? launch_pass<4>
                                      : launch_pass<kPassRows>;
        if (int error = pass(grad + t * N, weight, d_act + t * K, sums, int(rows), int(N), int(K), stream))
            return error;
    }
    return 0;
}
