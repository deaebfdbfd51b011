// d_act for tens of rows.
//
// A cluster of one or two blocks owns 16 rows x 168 columns of d_act and walks all of N: the blocks take rounds of 12
// chunks in turn, and in a block groups of 21 threads have a chunk each.  A round's sums meet in shared memory and are
// added in order during the next one, by the block of even rounds early in it and by the other late; so the total
// passes from one to the other without waiting, and no sum leaves a multiprocessor.
#pragma once

#include <type_traits>

#include "barrier.cuh"
#include "cluster.cuh"

namespace adaln {
namespace {
namespace fold {

constexpr int kRows = 16, kMembers = 21, kColumns = 8 * kMembers;  // a thread has kRows x 8 outputs of one chunk
constexpr int kGroups = 12, kThreads = 256, kMostRanks = 2;
constexpr int kRound = kGroups * kChunk;  // n of a round
constexpr int kOutputs = kRows * kColumns;
constexpr int kDepth = 16;  // n of every chunk whose grad is in shared memory at a time
constexpr int kStages = kChunk / kDepth;  // of a round
constexpr int kAhead = 8;   // n of the weight that a thread fetches ahead
constexpr int kGroupGrad = kDepth * kRows + 4;  // the 4 keep the groups of a warp on different banks
constexpr int kPieces = kGroups * kRows * kDepth / 8;  // of grad per stage: eight n of a row
constexpr int kThreadPieces = ceil_div(kPieces, kThreads);
struct Tile {
    float grad[2][kGroups * kGroupGrad];  // [buffer][group][n][row]
    float sums[kGroups][kOutputs];
    float total[kOutputs];
    Buffers buffers;
    uint64_t received;
};

template <bool kAligned>
__global__ void __launch_bounds__(kThreads, 1)
    fold_chunks(const uint16_t *__restrict__ grad, const uint16_t *__restrict__ weight, float *__restrict__ d_act, int T,
               int N, int K, int ranks) {
    extern __shared__ __align__(16) char shared_bytes[];
    Tile &shared = *reinterpret_cast<Tile *>(shared_bytes);
    // The last tile of columns ends at K and may repeat columns of the one before: the same bits are stored twice.
    const int rank = cluster_rank(), tile = int(blockIdx.x) / ranks, column_tiles = ceil_div(K, kColumns);
    const int t0 = tile / column_tiles * kRows, k0 = min(tile % column_tiles * kColumns, K - kColumns);
    const int thread = threadIdx.x, group = min(thread / kMembers, kGroups - 1), member = thread % kMembers;
    const int skip = ranks * kRound - kChunk;  // from the end of a chunk to the next of the same group

    // grad: a thread fetches pieces of the next stage, and stores them as float32 when they are due.
    int grad_n = rank * kRound;
    uint4 pieces[kThreadPieces];
    const auto for_each_piece = [&](auto &&act) {  // act(piece of the thread, row, chunk of the round, first n)
#pragma unroll
        for (int i = 0; i < kThreadPieces; ++i) {
            const int piece = thread + kThreads * i;
            const int n = piece / kRows % (kDepth / 8) * 8;
            if (piece < kPieces) act(pieces[i], piece % kRows, piece / (kRows * kDepth / 8), n);
        }
    };
    const auto fetch_grad = [&](int stage) {
        for_each_piece([&](uint4 &piece, int row, int chunk, int n) {  // rows beyond T are not stored
            piece = load_bf16x8<kAligned>(grad + int64_t(min(t0 + row, T - 1)) * N, grad_n + chunk * kChunk + n, N);
        });
        grad_n += stage % kStages == kStages - 1 ? kDepth + skip : kDepth;
    };
    const auto store_grad = [&](int stage) {
        shared.buffers.begin_to_fill(stage);
        for_each_piece([&](const uint4 &piece, int row, int chunk, int first_n) {
            float v[8];
            unpack_bf16x8(piece, v);
#pragma unroll
            for (int n = 0; n < 8; ++n) shared.grad[stage % 2][chunk * kGroupGrad + (first_n + n) * kRows + row] = v[n];
        });
        shared.buffers.end_to_fill(stage);
    };

    // The weight: a thread's columns of the coming kAhead rows of its chunk, in registers.
    int weight_n = rank * kRound + group * kChunk;
    const uint16_t *weight_row = weight + int64_t(weight_n) * K + k0 + 8 * member;
    uint4 ahead[kAhead];
    const auto fetch_weight = [&](uint4 &bits, bool whole) {
        if (whole || weight_n < N)
            bits = __ldg(reinterpret_cast<const uint4 *>(weight_row));
        else
            bits = make_uint4(0, 0, 0, 0);
        weight_row += K, ++weight_n;
    };

    const int rounds = ceil_div(N, kRound);
    int parity = 0;
    const auto add_sums = [&](int round) {
        const bool has_mail = ranks > 1 && round > 0;
        if (has_mail && thread == 0) barrier_expect(&shared.received, sizeof(shared.total));
        if (has_mail) wait_for_mail(&shared.received, parity), parity ^= 1;
#pragma unroll 1
        for (int i = thread; i < kOutputs / 4; i += kThreads) {
            float4 total = reinterpret_cast<const float4 *>(shared.total)[i];
            if (round == 0) total = make_float4(-0.0f, -0.0f, -0.0f, -0.0f);
#pragma unroll
            for (int c = 0; c < kGroups; ++c) {
                const float4 v = reinterpret_cast<const float4 *>(shared.sums[c])[i];
                total = make_float4(__fadd_rn(total.x, v.x), __fadd_rn(total.y, v.y), __fadd_rn(total.z, v.z),
                                    __fadd_rn(total.w, v.w));
            }
            if (round == rounds - 1) {
                const int t = t0 + 4 * i / kColumns, k = k0 + 4 * i % kColumns;
                if (t < T) *reinterpret_cast<float4 *>(d_act + int64_t(t) * K + k) = total;
            } else if (ranks > 1) {
                const float values[4] = {total.x, total.y, total.z, total.w};
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    mail(&shared.total[4 * i + j], &shared.received, rank ^ 1, values[j]);
            } else {
                reinterpret_cast<float4 *>(shared.total)[i] = total;
            }
        }
    };

    int stage = 0;
    // The stage in which the sums of the last round are added: after the first, by whose half all are stored, and before
    // the last, in which the next are.
    const int add_stage = rank == 0 ? 1 : kStages / 2;
    // One round.  `whole`: neither it nor the next, of which a little is fetched, goes beyond N.
    const auto walk = [&](auto whole_type, int round) {
        constexpr bool whole = decltype(whole_type)::value;
        const float start = whole || weight_n - kAhead < N ? 0.0f : -0.0f;
        float sum[kRows][8];
        fill(sum, start);
#pragma unroll 1
        for (int i = 0; i < kStages; ++i) {
            if (i == add_stage && round >= ranks) add_sums(round - ranks);
            shared.buffers.begin_to_read(stage);
            const float *g = &shared.grad[stage % 2][group * kGroupGrad];
#pragma unroll
            for (int n = 0; n < kDepth; ++n) {
                if (n == kDepth / 2) store_grad(stage + 1), fetch_grad(stage + 2);
                float w[8];
                unpack_bf16x8(ahead[n % kAhead], w);
                if (n == kDepth - kAhead && i == kStages - 1)  // on to the chunk of the next round
                    weight_row += int64_t(skip) * K, weight_n += skip;
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
            if (i < kStages - 1) shared.buffers.end_to_read(stage++);
        }
        if (thread < kGroups * kMembers) store_rows(&shared.sums[group][8 * member], kColumns, sum);
        shared.buffers.end_to_read(stage++);
    };

    if (thread == 0) shared.buffers.open(kThreads), barrier_init(&shared.received, 1), publish_barriers();
    __syncthreads();
    cluster_sync();
    fetch_grad(0);
    store_grad(0);
    fetch_grad(1);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) fetch_weight(ahead[i], false);
    int round = rank;
    for (; round < N / kRound - ranks; round += ranks) walk(std::true_type(), round);
    for (; round < rounds; round += ranks) walk(std::false_type(), round);
    __syncthreads();
    if (round - ranks >= 0) add_sums(round - ranks);
    cluster_sync();  // nobody leaves while the other writes to its mailbox
}

}  // namespace fold

int launch_fold(const uint16_t *grad, const uint16_t *weight, float *d_act, int T, int N, int K,
                cudaStream_t stream) {
    using namespace fold;
    Device device;
    if (int error = find_device(device)) return error;
    const auto kernel = N % 8 == 0 ? fold_chunks<true> : fold_chunks<false>;
    if (int error = allow_shared(kernel, sizeof(Tile))) return error;
    return launch_clusters(kernel, device, ceil_div(T, kRows) * ceil_div(K, kColumns), kMostRanks, kThreads,
                           sizeof(Tile), stream, grad, weight, d_act, T, N, K);
}

}  // namespace
}  // namespace adaln
