// d_act for few rows, which is bound by reading the weight.
//
// A slice of 8 * kLanes columns belongs to a cluster of blocks, which walk all of N: the blocks take sets of chunks in
// turn, and in a block each group of kLanes lanes has one chunk of the set.  A block adds the sums of its set in order
// to the total that the block of the set before sent it, and sends it on; so no sum leaves a multiprocessor, and totals
// do not pass through the L2 cache, which the weight keeps busy.  Before Hopper a cluster is one block.
#pragma once

#include "cluster.cuh"

namespace adaln {
namespace {
namespace slices {

constexpr int kMostRows = 8;   // of a pass
constexpr int kMostRanks = 8;  // blocks of a cluster
constexpr int kWideLanes = 8, kNarrowLanes = 4;  // Hopper and newer, and before
constexpr int kBatch = 4, kBatches = 4;  // rows of the weight per group of copies, groups in flight
constexpr int kStage = kBatch * kBatches;  // n of every chunk whose grad is in shared memory at a time

template <int kRows, int kLanes>
struct Slice {
    static constexpr int kColumns = 8 * kLanes, kOutputs = kRows * kColumns;
    static constexpr int kWarps = kLanes == kWideLanes ? 12 : 8, kThreads = 32 * kWarps;  // at most 219 or 162 KB
    static constexpr int kWarpChunks = 32 / kLanes, kChunks = kWarps * kWarpChunks;  // chunks of a set
    static constexpr int kPieces = kWarpChunks * kRows * kStage / 8;                 // of grad, of a warp: eight n
    static constexpr int kLanePieces = ceil_div(kPieces, 32);

    uint4 weight[kBatches][kBatch][kThreads];
    // [warp][chunk][n][row]; the 4 keep the chunks of a warp on different banks.
    float grad[kWarps][kWarpChunks][kStage * kRows + 4];
    float sums[kChunks][kOutputs];
    float total[kOutputs];
    uint64_t received;
};

template <int kRows, int kLanes, bool kAligned>
__global__ void __launch_bounds__(Slice<kRows, kLanes>::kThreads, 1)
    sum_slices(const uint16_t *__restrict__ grad, const uint16_t *__restrict__ weight, float *__restrict__ d_act, int T,
               int N, int K, int ranks) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    constexpr bool is_launched = kLanes == kWideLanes;
#else
    constexpr bool is_launched = kLanes == kNarrowLanes;
#endif
    if (!is_launched) return;  // not for this chip: do not compile the rest
    using Shared = Slice<kRows, kLanes>;
    extern __shared__ __align__(16) char shared_bytes[];
    Shared &shared = *reinterpret_cast<Shared *>(shared_bytes);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int chunk_of_warp = lane / kLanes;
    const int rank = cluster_rank(), chunk_of_set = warp * Shared::kWarpChunks + chunk_of_warp;
    const int k0 = int(blockIdx.x) / ranks * Shared::kColumns, k = k0 + lane % kLanes * 8;
    const int sets = ceil_div(N, Shared::kChunks * kChunk);
    const int apart = (ranks * Shared::kChunks - 1) * kChunk;  // from the end of a chunk to the group's next one

    // The weight: a lane copies its own columns of the coming rows to places of its own, and waits for nobody else.
    int next_n = (rank * Shared::kChunks + chunk_of_set) * kChunk;
    const uint16_t *const column = weight + (k < K ? k : 0), *next = column + int64_t(next_n) * K;
    const auto fetch = [&](int batch) {
        if (next_n + kBatch <= N) {
#pragma unroll
            for (int i = 0; i < kBatch; ++i, next += K) copy_async(&shared.weight[batch][i][threadIdx.x], next, true);
        } else {
#pragma unroll
            for (int i = 0; i < kBatch; ++i, next += K)
                copy_async(&shared.weight[batch][i][threadIdx.x], next_n + i < N ? next : column, next_n + i < N);
        }
        commit_copies();
        next_n += kBatch;
        if (next_n % kChunk == 0) next_n += apart, next += int64_t(apart) * K;
    };
#pragma unroll
    for (int i = 0; i < kBatches - 1; ++i) fetch(i);

    // grad: a lane fetches pieces of the next stage of its warp, and stores them as float32 when it is due.
    int grad_n = (rank * Shared::kChunks + warp * Shared::kWarpChunks) * kChunk;
    uint4 pieces[Shared::kLanePieces];
    const auto fetch_grad = [&](bool chunk_ends) {
#pragma unroll
        for (int i = 0; i < Shared::kLanePieces; ++i) {
            const int piece = lane + 32 * i, t = piece / 2 % kRows, n = piece / (2 * kRows) * kChunk + piece % 2 * 8;
            if (piece < Shared::kPieces)
                pieces[i] = load_bf16x8<kAligned>(grad + int64_t(min(t, T - 1)) * N, grad_n + n, N);
        }
        grad_n += chunk_ends ? kStage + apart : kStage;
    };
    const auto store_grad = [&] {
#pragma unroll
        for (int i = 0; i < Shared::kLanePieces; ++i) {
            const int piece = lane + 32 * i, t = piece / 2 % kRows, chunk = piece / (2 * kRows);
            if (piece >= Shared::kPieces) break;
            float v[8];
            unpack_bf16x8(pieces[i], v);
#pragma unroll
            for (int n = 0; n < 8; ++n) shared.grad[warp][chunk][(piece % 2 * 8 + n) * kRows + t] = v[n];
        }
    };

    if (threadIdx.x == 0) barrier_init(&shared.received, 1), publish_barriers();
    cluster_sync();
    fetch_grad(false);
    int parity = 0;
    for (int set = rank; set < sets; set += ranks) {
        // The last set's absent chunks sum to -0.
        const float start = (set * Shared::kChunks + chunk_of_set) * kChunk < N ? 0.0f : -0.0f;
        float sum[kRows][8];
        fill(sum, start);
#pragma unroll 1
        for (int stage = 0; stage < kChunk / kStage; ++stage) {
            __syncwarp();
            store_grad();
            __syncwarp();
            fetch_grad(stage == kChunk / kStage - 2);
            const float *g = shared.grad[warp][chunk_of_warp];
#pragma unroll
            for (int n = 0; n < kStage; n += kBatch, g += kBatch * kRows) {
                wait_copies<kBatches - 2>();
                uint4 bits[kBatch];
#pragma unroll
                for (int i = 0; i < kBatch; ++i) bits[i] = shared.weight[n / kBatch][i][threadIdx.x];
                fetch((n / kBatch + kBatches - 1) % kBatches);
                float x[kBatch * kRows];
#pragma unroll
                for (int i = 0; i < kBatch * kRows; i += 4)
                    *reinterpret_cast<float4 *>(x + i) = *reinterpret_cast<const float4 *>(g + i);
#pragma unroll
                for (int i = 0; i < kBatch; ++i) {
                    float w[8];
                    unpack_bf16x8(bits[i], w);
#pragma unroll
                    for (int t = 0; t < kRows; ++t)
#pragma unroll
                        for (int j = 0; j < 8; ++j) sum[t][j] = __fmaf_rn(x[i * kRows + t], w[j], sum[t][j]);
                }
            }
        }
        __syncthreads();  // the sums of the set before have been added
        store_rows(&shared.sums[chunk_of_set][lane % kLanes * 8], Shared::kColumns, sum);
        __syncthreads();
        const bool has_mail = ranks > 1 && set > 0;
        if (has_mail && threadIdx.x == 0) barrier_expect(&shared.received, sizeof(shared.total));
        for (int output = threadIdx.x; output < Shared::kOutputs; output += Shared::kThreads) {
            if (has_mail) wait_for_mail(&shared.received, parity);
            float total = set == 0 ? -0.0f : shared.total[output];
#pragma unroll 16
            for (int chunk = 0; chunk < Shared::kChunks; ++chunk)
                total = __fadd_rn(total, shared.sums[chunk][output]);
            if (set == sets - 1) {
                const int t = output / Shared::kColumns, column = k0 + output % Shared::kColumns;
                if (t < T && column < K) d_act[int64_t(t) * K + column] = total;
            } else if (ranks > 1) {
                mail(&shared.total[output], &shared.received, (rank + 1) % ranks, total);
            } else {
                shared.total[output] = total;
            }
        }
        if (has_mail) parity ^= 1;
    }
    cluster_sync();  // nobody leaves while others write to its mailbox
}

template <int kRows, int kLanes>
int launch(const uint16_t *grad, const uint16_t *weight, float *d_act, int T, int N, int K, const Device &device,
           cudaStream_t stream) {
    using Shared = Slice<kRows, kLanes>;
    const auto kernel = N % 8 == 0 ? sum_slices<kRows, kLanes, true> : sum_slices<kRows, kLanes, false>;
    if (int error = allow_shared(kernel, sizeof(Shared))) return error;
    return launch_clusters(kernel, device, ceil_div(K, Shared::kColumns), kMostRanks, Shared::kThreads, sizeof(Shared),
                           stream, grad, weight, d_act, T, N, K);
}

}  // namespace slices

// At most slices::kMostRows rows.  Without clusters, narrow slices keep more multiprocessors busy.
template <int kRows>
int launch_slices(const uint16_t *grad, const uint16_t *weight, float *d_act, int T, int N, int K,
                  cudaStream_t stream) {
    Device device;
    if (int error = find_device(device)) return error;
    const auto launch = device.major < 9 ? slices::launch<kRows, slices::kNarrowLanes>
                                         : slices::launch<kRows, slices::kWideLanes>;
    return launch(grad, weight, d_act, T, N, K, device, stream);
}

}  // namespace
}  // namespace adaln
