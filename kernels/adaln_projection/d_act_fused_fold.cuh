// d_act for many rows.
//
// A block owns 8 or 16 rows x 168 columns of d_act and walks all of N.  Groups of 21 threads take consecutive
// chunks at once, one chunk each; the chunk sums meet in shared memory and are added in order, so none leaves the
// multiprocessor. 8 rows keep more multiprocessors busy, 16 rows use what is fetched twice as often.
#pragma once

#include <type_traits>

#include "common.cuh"

namespace adaln {
namespace {

constexpr int kChunk = 64;  // n that form one chain

constexpr int kMembers = 21, kColumns = 8 * kMembers;
constexpr int kStage = 16;  // n of every chunk whose grad is in shared memory at a time
constexpr int kAhead = 4;   // n of the weight that a thread fetches ahead

template <int kRows>
struct FoldTile {
    static constexpr int kGroups = 192 / kRows, kThreads = ceil_div(kGroups * kMembers, 32) * 32;
    static constexpr int kRound = kGroups * kChunk;           // n that a block takes at once
    static constexpr int kOutputs = kRows * kColumns;
    static constexpr int kGroupGrad = kStage * kRows + 4;     // the 4 keep the groups of a warp on different banks
    static constexpr int kPieces = kGroups * kRows * kStage / 8, kPieceLoads = ceil_div(kPieces, kThreads);

    float grad[2][kGroups * kGroupGrad];  // [group][n][row]
    float sums[kGroups][kOutputs];
    float total[kOutputs];
};

// A thread has kRows x 8 outputs of one chunk.
template <int kRows, bool kAligned>
__global__ void __launch_bounds__(FoldTile<kRows>::kThreads, 1)
    fused_fold(const uint16_t *__restrict__ grad, const uint16_t *__restrict__ weight, float *__restrict__ d_act, int T,
               int N, int K) {
    using Tile = FoldTile<kRows>;
    constexpr int kThreads = Tile::kThreads, kGroups = Tile::kGroups, kRound = Tile::kRound;
    extern __shared__ __align__(16) char shared_bytes[];
    Tile &shared = *reinterpret_cast<Tile *>(shared_bytes);
    // The last tile of columns ends at K and may repeat columns of the one before: the same bits are stored twice.
    const int column_tiles = ceil_div(K, kColumns);
    const int t0 = blockIdx.x / column_tiles * kRows, k0 = min(int(blockIdx.x) % column_tiles * kColumns, K - kColumns);
    const int group = min(int(threadIdx.x) / kMembers, kGroups - 1), member = threadIdx.x % kMembers;

    // grad: a thread fetches some pieces of eight n of a row of the next stage, and stores them as float32 when it
    // is due.
    constexpr int kGroupPieces = kRows * kStage / 8;
    const int row = threadIdx.x % kRows, half = threadIdx.x / kRows % 2, first_group = threadIdx.x / kGroupPieces;
    const uint16_t *const grad_row = grad + int64_t(min(t0 + row, T - 1)) * N;  // rows beyond T are not stored
    int grad_n = first_group * kChunk + 8 * half;
    uint4 pieces[Tile::kPieceLoads];
    const auto fetch_grad = [&](bool last) {
#pragma unroll
        for (int i = 0; i < Tile::kPieceLoads; ++i)
            if (threadIdx.x + i * kThreads < Tile::kPieces)
                pieces[i] = load_bf16x8<kAligned>(grad_row, grad_n + i * (kThreads / kGroupPieces) * kChunk, N);
        grad_n += last ? kRound - kChunk + kStage : kStage;
    };
    float *const grad_out = &shared.grad[0][first_group * Tile::kGroupGrad + 8 * half * kRows + row];
    const auto store_grad = [&](int buffer) {
#pragma unroll
        for (int i = 0; i < Tile::kPieceLoads; ++i) {
            if (threadIdx.x + i * kThreads >= Tile::kPieces) break;
            float v[8];
            unpack_bf16x8(pieces[i], v);
            float *out = grad_out + (buffer * kGroups + i * (kThreads / kGroupPieces)) * Tile::kGroupGrad;
#pragma unroll
            for (int n = 0; n < 8; ++n) out[n * kRows] = v[n];
        }
    };

    // The weight: a thread's columns of the coming kAhead rows of its chunk, in registers.
    int weight_n = group * kChunk;
    const uint16_t *weight_row = weight + int64_t(weight_n) * K + k0 + 8 * member;
    uint4 ahead[kAhead];
    const auto fetch_weight = [&](uint4 &bits, bool whole) {
        if (whole || weight_n < N)
            bits = __ldg(reinterpret_cast<const uint4 *>(weight_row));
        else
            bits = make_uint4(0, 0, 0, 0);
        weight_row += K, ++weight_n;
    };

    float sum[kRows][8];
    // One round: kGroups chunks.  `whole`: neither it nor the next, of which a little is fetched, goes beyond N.
    const auto walk = [&](auto whole_type) {
        constexpr bool whole = decltype(whole_type)::value;
        const float start = whole || weight_n - kAhead < N ? 0.0f : -0.0f;
#pragma unroll
        for (int t = 0; t < kRows; ++t)
#pragma unroll
            for (int j = 0; j < 8; ++j) sum[t][j] = start;
#pragma unroll 1
        for (int stage = 0; stage < kChunk / kStage; ++stage) {
            fetch_grad(stage == kChunk / kStage - 2);
            const float *g = &shared.grad[stage % 2][group * Tile::kGroupGrad];
#pragma unroll
            for (int n = 0; n < kStage; ++n) {
                float w[8];
                unpack_bf16x8(ahead[n % kAhead], w);
                if (n == kStage - kAhead && stage == kChunk / kStage - 1)  // on to the chunk of the next round
                    weight_row += int64_t(kRound - kChunk) * K, weight_n += kRound - kChunk;
                fetch_weight(ahead[n % kAhead], whole);
#pragma unroll
                for (int t = 0; t < kRows; t += 4) {
                    const float4 v = *reinterpret_cast<const float4 *>(g + n * kRows + t);
                    const float x[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
                    for (int r = 0; r < 4; ++r)
#pragma unroll
                        for (int j = 0; j < 8; ++j) sum[t + r][j] = __fmaf_rn(x[r], w[j], sum[t + r][j]);
                }
            }
            store_grad((stage + 1) % 2);
            __syncthreads();
        }
    };

    for (int i = threadIdx.x; i < Tile::kOutputs / 4; i += kThreads)
        reinterpret_cast<float4 *>(shared.total)[i] = make_float4(-0.0f, -0.0f, -0.0f, -0.0f);
    fetch_grad(false);
    store_grad(0);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) fetch_weight(ahead[i], false);
    __syncthreads();
    const int rounds = ceil_div(N, kRound), whole_rounds = N / kRound - 1;
    for (int round = 0; round < rounds; ++round) {
        if (round < whole_rounds)
            walk(std::true_type());
        else
            walk(std::false_type());
        if (threadIdx.x < kGroups * kMembers)
#pragma unroll
            for (int t = 0; t < kRows; ++t)
#pragma unroll
                for (int j = 0; j < 8; j += 4)
                    *reinterpret_cast<float4 *>(&shared.sums[group][t * kColumns + 8 * member + j]) =
                        make_float4(sum[t][j], sum[t][j + 1], sum[t][j + 2], sum[t][j + 3]);
        __syncthreads();
        for (int i = threadIdx.x; i < Tile::kOutputs / 4; i += kThreads) {
            float4 total = reinterpret_cast<const float4 *>(shared.total)[i];
#pragma unroll
            for (int c = 0; c < kGroups; ++c) {
                const float4 v = reinterpret_cast<const float4 *>(shared.sums[c])[i];
                total = make_float4(__fadd_rn(total.x, v.x), __fadd_rn(total.y, v.y), __fadd_rn(total.z, v.z),
                                    __fadd_rn(total.w, v.w));
            }
            reinterpret_cast<float4 *>(shared.total)[i] = total;
        }
    }
    for (int i = threadIdx.x; i < Tile::kOutputs / 4; i += kThreads) {
        const int t = t0 + 4 * i / kColumns, k = k0 + 4 * i % kColumns;
        if (t < T)
            *reinterpret_cast<float4 *>(d_act + int64_t(t) * K + k) = reinterpret_cast<const float4 *>(shared.total)[i];
    }
}

template <int kRows>
int launch_fused_fold(const uint16_t *grad, const uint16_t *weight, float *d_act, int T, int N, int K,
                      cudaStream_t stream) {
    using Tile = FoldTile<kRows>;
    const auto kernel = N % 8 == 0 ? fused_fold<kRows, true> : fused_fold<kRows, false>;
    if (int error = allow_shared(kernel, sizeof(Tile))) return error;
    const int blocks = ceil_div(T, kRows) * ceil_div(K, kColumns);
    kernel<<<blocks, Tile::kThreads, sizeof(Tile), stream>>>(grad, weight, d_act, T, N, K);
    return cudaGetLastError();
}

}  // namespace
}  // namespace adaln
