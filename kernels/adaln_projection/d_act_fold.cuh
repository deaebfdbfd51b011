// d_act for tens of rows.
//
// A block owns 8 rows x 168 columns of d_act and walks all of N.  Its two teams take rounds of 12 chunks in turn, half
// a round apart; in a team, groups of 21 threads have a chunk each.  Chunk sums meet in shared memory and are added in
// order, so none leaves the multiprocessor; while one team adds, the other multiplies.
#pragma once

#include <type_traits>

#include "common.cuh"

namespace adaln {
namespace {
namespace fold {

constexpr int kRows = 8, kMembers = 21, kColumns = 8 * kMembers;  // a thread has kRows x 8 outputs of one chunk
constexpr int kTeams = 2, kGroups = 12, kTeamThreads = 256;
constexpr int kRound = kGroups * kChunk;  // n of a round
constexpr int kOutputs = kRows * kColumns;
constexpr int kStage = 16;  // n of every chunk whose grad is in shared memory at a time
constexpr int kStages = kChunk / kStage;  // of a round
constexpr int kAhead = 4;   // n of the weight that a thread fetches ahead
constexpr int kGroupGrad = kStage * kRows + 4;  // the 4 keep the groups of a warp on different banks
constexpr int kPieces = kGroups * kRows * kStage / 8;  // of grad per stage: eight n of a row

struct Tile {
    float grad[kTeams][2][kGroups * kGroupGrad];  // [team][buffer][group][n][row]
    float sums[kTeams][kGroups][kOutputs];
    float total[kOutputs];
};

template <bool kAligned>
__global__ void __launch_bounds__(kTeams *kTeamThreads, 1)
    fold_chunks(const uint16_t *__restrict__ grad, const uint16_t *__restrict__ weight, float *__restrict__ d_act, int T,
               int N, int K) {
    extern __shared__ __align__(16) char shared_bytes[];
    Tile &shared = *reinterpret_cast<Tile *>(shared_bytes);
    // The last tile of columns ends at K and may repeat columns of the one before: the same bits are stored twice.
    const int column_tiles = ceil_div(K, kColumns);
    const int t0 = blockIdx.x / column_tiles * kRows, k0 = min(int(blockIdx.x) % column_tiles * kColumns, K - kColumns);
    const int team = threadIdx.x / kTeamThreads, thread = threadIdx.x % kTeamThreads;
    const int group = min(thread / kMembers, kGroups - 1), member = thread % kMembers;
    constexpr int kSkip = kTeams * kRound - kChunk;  // from the end of a chunk to the next of the same group

    // grad: a thread fetches a piece of the next stage, and stores it as float32 when it is due.
    const int row = thread % kRows, half = thread / kRows % 2, piece_group = thread / (2 * kRows);
    const bool has_piece = thread < kPieces;
    const uint16_t *const grad_row = grad + int64_t(min(t0 + row, T - 1)) * N;  // rows beyond T are not stored
    int grad_n = team * kRound + piece_group * kChunk + 8 * half;
    uint4 piece;
    const auto fetch_grad = [&](bool last) {
        if (has_piece) piece = load_bf16x8<kAligned>(grad_row, grad_n, N);
        grad_n += last ? kStage + kSkip : kStage;
    };
    float *const grad_out = &shared.grad[team][0][piece_group * kGroupGrad + 8 * half * kRows + row];
    const auto store_grad = [&](int buffer) {
        if (!has_piece) return;
        float v[8];
        unpack_bf16x8(piece, v);
#pragma unroll
        for (int n = 0; n < 8; ++n) grad_out[buffer * kGroups * kGroupGrad + n * kRows] = v[n];
    };

    // The weight: a thread's columns of the coming kAhead rows of its chunk, in registers.
    int weight_n = team * kRound + group * kChunk;
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
    // One stage.  `whole`: neither it nor the next, of which a little is fetched, goes beyond N.
    const auto walk = [&](auto whole_type, int stage) {
        constexpr bool whole = decltype(whole_type)::value;
        if (stage == 0) {
            const float start = whole || weight_n - kAhead < N ? 0.0f : -0.0f;
#pragma unroll
            for (int t = 0; t < kRows; ++t)
#pragma unroll
                for (int j = 0; j < 8; ++j) sum[t][j] = start;
        }
        fetch_grad(stage == kStages - 2);
        const float *g = &shared.grad[team][stage % 2][group * kGroupGrad];
#pragma unroll
        for (int n = 0; n < kStage; ++n) {
            float w[8];
            unpack_bf16x8(ahead[n % kAhead], w);
            if (n == kStage - kAhead && stage == kStages - 1)  // on to the chunk of the next round
                weight_row += int64_t(kSkip) * K, weight_n += kSkip;
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
        if (stage == kStages - 1 && thread < kGroups * kMembers)
#pragma unroll
            for (int t = 0; t < kRows; ++t)
#pragma unroll
                for (int j = 0; j < 8; j += 4)
                    *reinterpret_cast<float4 *>(&shared.sums[team][group][t * kColumns + 8 * member + j]) =
                        make_float4(sum[t][j], sum[t][j + 1], sum[t][j + 2], sum[t][j + 3]);
    };
    const auto add_sums = [&] {
        for (int i = thread; i < kOutputs / 4; i += kTeamThreads) {
            float4 total = reinterpret_cast<const float4 *>(shared.total)[i];
#pragma unroll
            for (int c = 0; c < kGroups; ++c) {
                const float4 v = reinterpret_cast<const float4 *>(shared.sums[team][c])[i];
                total = make_float4(__fadd_rn(total.x, v.x), __fadd_rn(total.y, v.y), __fadd_rn(total.z, v.z),
                                    __fadd_rn(total.w, v.w));
            }
            reinterpret_cast<float4 *>(shared.total)[i] = total;
        }
    };

    for (int i = threadIdx.x; i < kOutputs; i += kTeams * kTeamThreads) shared.total[i] = -0.0f;
    fetch_grad(false);
    store_grad(0);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) fetch_weight(ahead[i], false);
    const int rounds = ceil_div(N, kRound), whole_rounds = N / kRound - kTeams;
    // The second team begins when the first is half through its first round, and adds last.
    const int apart = team * (kStages / 2), steps = ceil_div(rounds, kTeams) * kStages + kStages / 2;
#pragma unroll 1
    for (int step = 0; step <= steps; ++step) {
        __syncthreads();  // of the stage
        const int stage = (step - apart) & (kStages - 1), round = (step - apart) / kStages * kTeams + team;
        if (step < apart) continue;
        if (stage == 0 && round >= kTeams && round - kTeams < rounds) add_sums();
        if (round < whole_rounds)
            walk(std::true_type(), stage);
        else if (round < rounds)
            walk(std::false_type(), stage);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < kOutputs / 4; i += kTeams * kTeamThreads) {
        const int t = t0 + 4 * i / kColumns, k = k0 + 4 * i % kColumns;
        if (t < T)
            *reinterpret_cast<float4 *>(d_act + int64_t(t) * K + k) = reinterpret_cast<const float4 *>(shared.total)[i];
    }
}

}  // namespace fold

int launch_fold(const uint16_t *grad, const uint16_t *weight, float *d_act, int T, int N, int K,
                cudaStream_t stream) {
    using namespace fold;
    const auto kernel = N % 8 == 0 ? fold_chunks<true> : fold_chunks<false>;
    if (int error = allow_shared(kernel, sizeof(Tile))) return error;
    const int blocks = ceil_div(T, kRows) * ceil_div(K, kColumns);
    kernel<<<blocks, kTeams * kTeamThreads, sizeof(Tile), stream>>>(grad, weight, d_act, T, N, K);
    return cudaGetLastError();
}

}  // namespace
}  // namespace adaln
