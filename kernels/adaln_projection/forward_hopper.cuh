// The forward for many rows on Hopper (sm_90a): wgmma.m64n64k16 from a zero accumulator gives the bits of mma.sync.
//
// A block owns 64 rows of the weight per multiplying warpgroup and 64 * kColumns rows of act, and walks K in stages of
// 64, four groups of 16 k each.  The weight comes from registers: a warp copies its 16 rows ahead to
// shared memory of its own, and 16 bytes of a row hold a lane's share of two groups.  act comes from shared memory,
// where a group must lie together; pack_act writes it to scratch in the very order of a stage's tile, which one
// bulk copy then fetches.  Two sets of result registers take turns: while the tensor cores work on one, the float32
// units add the other to the running sums.
#pragma once

#include "common.cuh"
#include "hopper.cuh"

namespace adaln {
namespace {

constexpr int kFetchRegisters = 32;
constexpr int kStageK = 64, kStageGroups = kStageK / 16;
constexpr int kWeightStages = 4;

template <int kColumns>
constexpr int kActPieces = 64 * kColumns * kStageK / 8;  // 16-byte pieces of act per stage

template <int kColumns>
struct HopperTile {
    static constexpr int kWarpgroups = kColumns == 4 ? 2 : 3;  // that multiply; one thread of another fetches act
    static constexpr int kThreads = 128 * (kWarpgroups + 1), kWeightRows = 64 * kWarpgroups;
    static constexpr int kMultiplyRegisters = kWarpgroups == 2 ? 232 : 160;
    static constexpr int kActStages = 8 / kColumns;

    uint4 act[kActStages][kActPieces<kColumns>];         // [step of 32 k][row / 8][piece][row % 8]
    uint4 weight[4 * kWarpgroups][kWeightStages][16][8];  // of a warp: [row][piece], odd rows' halves swapped
    uint4 table[kWarpgroups][64 * kColumns * 8];         // of a warpgroup: [act row][weight row / 8], swizzled
    uint64_t full[kActStages], empty[kActStages];
};

// scratch[tile][step][row / 8][piece][row % 8] of 16 bytes: piece p holds k = 32 step + 8 q + 2 p + {0, 1}, q =
// 0..3, so pieces 0 and 1 are group one, 2 and 3 group two.  Zeros beyond T and K.
__global__ void pack_act(const uint16_t *__restrict__ act, uint4 *__restrict__ scratch, int T, int K, int steps,
                         int tile_rows, int64_t total) {
    let_next_kernel_begin();
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= total) return;
    const int row = int(i % 8), piece = int(i / 8 % 4), block = int(i / 32 % (tile_rows / 8));
    const int64_t rest = i / (4 * tile_rows);
    const int step = int(rest % steps), t = int(rest / steps) * tile_rows + 8 * block + row;
    const int k = 32 * step + 2 * piece;
    uint32_t words[4];
#pragma unroll
    for (int q = 0; q < 4; ++q)
        words[q] = t < T && k + 8 * q < K ? *reinterpret_cast<const uint32_t *>(act + int64_t(t) * K + k + 8 * q) : 0;
    scratch[i] = make_uint4(words[0], words[1], words[2], words[3]);
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// Adds the bias, rounds, transposes through shared memory and stores a warpgroup's results, 64 by 64 a part.
template <int kParts>
__device__ inline void store_table(const Result (&sums)[kParts], uint4 *shared, const uint16_t *bias,
                                   uint16_t *table, int t0, int n0, int T, int N) {
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32, row = 16 * warp + lane / 4;
    float b[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) b[half] = n0 + row + 8 * half < N ? bf16_value(bias[n0 + row + 8 * half]) : 0;
    warpgroup_sync(threadIdx.x / 128);
#pragma unroll
    for (int c = 0; c < kParts; ++c)
#pragma unroll
        for (int j = 0; j < 8; j += 2) {
            uint32_t r[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float *v = &sums[c].v[4 * (j + i / 2) + i % 2 * 2];
                r[i] = pack_bf16(__fadd_rn(v[0], b[i % 2]), __fadd_rn(v[1], b[i % 2]));
            }
            const int t = 64 * c + 8 * (j + lane / 16) + lane % 8, piece = 2 * warp + lane / 8 % 2;
            asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                             shared_address(shared + t * 8 + (piece ^ t % 8))),
                         "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                         : "memory");
        }
    warpgroup_sync(threadIdx.x / 128);
#pragma unroll 4
    for (int i = thread; i < 64 * kParts * 8; i += 128) {
        const int t = i / 8, n = n0 + i % 8 * 8;
        if (t0 + t >= T || n >= N) continue;
        const uint4 piece = shared[t * 8 + (i % 8 ^ t % 8)];
        uint16_t *out = table + int64_t(t0 + t) * N + n;
        if (N % 8 == 0) {
            __stcs(reinterpret_cast<uint4 *>(out), piece);
        } else {
            const uint32_t words[4] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
            for (int j = 0; j < 8; ++j)
                if (n + j < N) out[j] = uint16_t(words[j / 2] >> j % 2 * 16);
        }
    }
}

template <int kColumns>
__device__ inline void fetch_act(HopperTile<kColumns> &shared, const uint4 *packed, int stages, int act_tiles,
                                 int tiles) {
    wait_for_previous_kernel();
    asm volatile("fence.proxy.async;" ::: "memory");  // bulk copies read what pack_act wrote by ordinary stores
    int slot = 0, phase = 0;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const uint4 *source = packed + int64_t(tile % act_tiles) * stages * kActPieces<kColumns>;
        for (int stage = 0; stage < stages; ++stage, source += kActPieces<kColumns>) {
            barrier_wait(&shared.empty[slot], phase ^ 1);
            bulk_copy(shared.act[slot], source, sizeof(shared.act[0]), &shared.full[slot]);
            if (++slot == shared.kActStages) slot = 0, phase ^= 1;
        }
    }
}

template <int kColumns>
__device__ inline void multiply(HopperTile<kColumns> &shared, const uint16_t *weight, const uint16_t *bias,
                                uint16_t *table, int T, int N, int K, int stages, int act_tiles, int tiles) {
    using Tile = HopperTile<kColumns>;
    constexpr int kWeightRows = Tile::kWeightRows;
    const int warpgroup = threadIdx.x / 128, warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = lane / 4;
    auto &ring = shared.weight[warp];

    // The fetched weight runs kWeightStages ahead of the used one, across tiles: a lane copies piece lane % 8 of four
    // rows.  Rows beyond N and columns beyond K become zeros.
    const int advance = gridDim.x / act_tiles, advance_act = gridDim.x % act_tiles, first_k = lane % 8 * 8;
    int next_n = blockIdx.x / act_tiles * kWeightRows + 16 * warp + lane / 8, next_act = blockIdx.x % act_tiles;
    int next_k = first_k, next_slot = 0;
    const uint16_t *next = weight + int64_t(next_n) * K + first_k;
    uint4 *const copied = &ring[0][lane / 8][lane % 8 ^ lane / 8 % 2 * 4];
    const auto fetch = [&] {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            copy_async(copied + (next_slot * 16 + 4 * i) * 8, next + i * 4 * int64_t(K),
                       next_k < K && next_n + 4 * i < N);
        commit_copies();
        next += kStageK, next_k += kStageK;
        next_slot = (next_slot + 1) % kWeightStages;
        if (next_k >= stages * kStageK) {
            next_act += advance_act;
            next_n += (advance + (next_act >= act_tiles)) * kWeightRows;
            next_act -= next_act >= act_tiles ? act_tiles : 0;
            next_k = first_k, next = weight + int64_t(next_n) * K + first_k;
        }
    };
#pragma unroll 1
    for (int i = 0; i < kWeightStages; ++i) fetch();

    // A lane's words of one group of a stage: half of a piece of rows `row` and `row + 8`.
    const auto load_group = [&](uint32_t (&a)[4], int slot, int group) {
        const int piece = (group / 2 * 4 + lane % 4) ^ row % 2 * 4;
        const uint2 low = reinterpret_cast<const uint2 *>(&ring[slot][row][piece])[group % 2];
        const uint2 high = reinterpret_cast<const uint2 *>(&ring[slot][row + 8][piece])[group % 2];
        a[0] = low.x, a[1] = high.x, a[2] = low.y, a[3] = high.y;
    };

    uint32_t groups[2][4];
    int weight_slot = 0, slot = 0, phase = 0;
    wait_copies<kWeightStages - 1>();
    __syncwarp();
    load_group(groups[0], 0, 0);
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        Result sums[kColumns] = {}, results[2] = {};
        for (int stage = 0; stage < stages; ++stage) {
            barrier_wait(&shared.full[slot], phase);
            const uint64_t act = act_descriptor(shared.act[slot]);
#pragma unroll
            for (int i = 0; i < kStageGroups * kColumns; ++i) {
                const int group = i / kColumns, part = i % kColumns;
                const int offset = group / 2 * (64 * kColumns * 64) + group % 2 * 256 + part * 64 * 64;
                start_group(results[i % 2], groups[group % 2], act + (offset >> 4));
                if (i > 0) wait_results<1>(results[(i - 1) % 2]);
                // The group before has been summed: its registers are free for the group after.
                if (part == 0 && group < kStageGroups - 1) {
                    load_group(groups[(group + 1) % 2], weight_slot, group + 1);
                } else if (part == 0) {
                    wait_copies<kWeightStages - 2>();
                    __syncwarp();
                    weight_slot = (weight_slot + 1) % kWeightStages;
                    load_group(groups[0], weight_slot, 0);
                }
                if (i > 0) add(sums[(i - 1) % kColumns], results[(i - 1) % 2]);
            }
            wait_results<0>(results[1]);
            add(sums[kColumns - 1], results[1]);
            if (lane == 0) barrier_arrive(&shared.empty[slot]);
            fetch();
            if (++slot == shared.kActStages) slot = 0, phase ^= 1;
        }
        store_table(sums, shared.table[warpgroup], bias, table, tile % act_tiles * 64 * kColumns,
                    tile / act_tiles * kWeightRows + 64 * warpgroup, T, N);
    }
}

#endif

template <int kColumns>
__global__ void __launch_bounds__(HopperTile<kColumns>::kThreads, 1)
    forward_hopper(const uint4 *__restrict__ packed, const uint16_t *__restrict__ weight,
                   const uint16_t *__restrict__ bias, uint16_t *__restrict__ table, int T, int N, int K) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using Tile = HopperTile<kColumns>;
    extern __shared__ __align__(128) char shared_bytes[];
    Tile &shared = *reinterpret_cast<Tile *>(shared_bytes);
    const int stages = ceil_div(K, kStageK), act_tiles = ceil_div(T, 64 * kColumns);
    const int tiles = ceil_div(N, Tile::kWeightRows) * act_tiles;
    if (threadIdx.x == 0) {
        for (int i = 0; i < Tile::kActStages; ++i)
            barrier_init(&shared.full[i], 1), barrier_init(&shared.empty[i], 4 * Tile::kWarpgroups);
        publish_barriers();
    }
    __syncthreads();
    if (threadIdx.x < 128 * Tile::kWarpgroups) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Tile::kMultiplyRegisters));
        multiply(shared, weight, bias, table, T, N, K, stages, act_tiles, tiles);
    } else {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kFetchRegisters));
        if (threadIdx.x == 128 * Tile::kWarpgroups) fetch_act(shared, packed, stages, act_tiles, tiles);
    }
#endif
}

template <int kColumns>
int launch_hopper(const uint16_t *act, const uint16_t *weight, const uint16_t *bias, uint16_t *table, uint4 *scratch,
                  int T, int N, int K, const Device &device, cudaStream_t stream) {
    using Tile = HopperTile<kColumns>;
    const auto kernel = forward_hopper<kColumns>;
    if (int error = allow_shared(kernel, sizeof(Tile))) return error;
    const int stages = ceil_div(K, kStageK), act_tiles = ceil_div(T, 64 * kColumns);
    const int tiles = ceil_div(N, Tile::kWeightRows) * act_tiles;
    const int64_t pieces = int64_t(act_tiles) * stages * kActPieces<kColumns>;
    pack_act<<<unsigned(ceil_div<int64_t>(pieces, 256)), 256, 0, stream>>>(act, scratch, T, K, stages * kStageK / 32,
                                                                         64 * kColumns, pieces);
    if (int error = cudaGetLastError()) return error;
    return launch_early(kernel, device, tiles < device.multiprocessors ? tiles : device.multiprocessors, Tile::kThreads,
                        sizeof(Tile), stream, static_cast<const uint4 *>(scratch), weight, bias, table, T, N, K);
}

}  // namespace
}  // namespace adaln
