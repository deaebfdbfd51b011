// d_act[t, k]: n in chunks of 64, each an ascending fma chain from 0; chunk sums added in ascending order.
//
// Few rows: bound by reading the weight, so all multiprocessors stream chunks of it; the chunk sums go to scratch
// and a second kernel adds them in order.  At most eight rows share a pass, so scratch stays small (130 MB at H3's
// width). Many rows take d_act_fused_fold.cuh, which gives the same bits.
//
// The total starts at -0, to which adding the first chunk's sum gives that sum, whatever its sign.  Absent n have a
// grad of -0 and a weight of +0, absent chunks a sum of -0: neither changes a bit.
#include "common.cuh"
#include "d_act_fused_fold.cuh"

namespace adaln {
namespace {

constexpr int kPassRows = 8;
constexpr int64_t kMostRowsInPasses = 32;

constexpr int kBatch = 4, kBatches = 5;  // rows per group of copies, groups in flight

// Blocks take chunks in turn.  A thread owns 8 columns: it copies its own pieces of the coming rows of the weight
// to its own places in shared memory, so it waits for nobody but itself.
template <int kRows>
__global__ void chunk_sums(const uint16_t *__restrict__ grad, const uint16_t *__restrict__ weight,
                           float *__restrict__ sums, int rows, int N, int K) {
    extern __shared__ uint4 ring[];  // [kBatches][kBatch][blockDim.x]
    __shared__ float g[2][kChunk][kRows];
    let_next_kernel_begin();
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
            g[parity][i % kChunk][t] = t < rows && n < N ? bf16_value(__ldg(grad + int64_t(t) * N + n)) : -0.0f;
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
constexpr int kFoldRows = 2 * kFoldThreads / (kFoldOutputs / 4), kFoldStages = 6;

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
    wait_for_previous_kernel();
    for (int stage = 0; stage < kFoldStages - 1; ++stage) fetch(stage);
    float total = -0.0f;
    for (int stage = 0; stage * kFoldRows < chunks; ++stage) {
        wait_copies<kFoldStages - 2>();
        __syncthreads();
        fetch(stage + kFoldStages - 1);
        const float *values = &stages[(stage % kFoldStages) * kFoldRows * kFoldOutputs + threadIdx.x];
        const int present = min(kFoldRows, chunks - stage * kFoldRows);
        if (threadIdx.x < kFoldOutputs)
#pragma unroll 16
            for (int i = 0; i < present; ++i) total = __fadd_rn(total, values[i * kFoldOutputs]);
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
    if (int error = cudaGetLastError()) return error;
    const int64_t outputs = int64_t(rows) * K;
    return launch_early(fold, device, ceil_div<int64_t>(outputs, kFoldOutputs), kFoldThreads, fold_shared, stream,
                        static_cast<const float *>(sums), d_act, chunks, outputs);
}

bool fits_fused_fold(int64_t T, int64_t K) { return T > kMostRowsInPasses && K >= kColumns; }

}  // namespace
}  // namespace adaln

extern "C" int64_t adaln_cuda_d_act_scratch_bytes(int64_t T, int64_t N, int64_t K) {
    using namespace adaln;
    if (bad_sizes(T, N, K) || fits_fused_fold(T, K)) return 0;
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
    if (fits_fused_fold(T, K)) {
        const auto launch = T <= 64 ? launch_fused_fold<8> : launch_fused_fold<16>;
        return launch(grad, weight, d_act, int(T), int(N), int(K), stream);
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
