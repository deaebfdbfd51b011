// The forward for many rows on Hopper (sm_90a): wgmma.m64n64k16 from a zero accumulator gives the bits of mma.sync.
//
// A block owns 128 rows of the weight (two warpgroups of 64) and 64 * kColumns rows of act, and walks K in steps of 32.
// The weight comes from registers: a lane's share of both groups of a step is 16 bytes of each of its two rows, which it
// copies ahead to its own places in shared memory.  act comes from shared memory, where a group must lie together;
// pack_act writes it to scratch in the very order of a step's tile, which one bulk copy then fetches.
// While the tensor cores work on one result, the float32 units add the one before to the running sums.
#pragma once

#include "common.cuh"

namespace adaln {
namespace {

constexpr int kHopperRows = 128, kHopperThreads = 384;  // two warpgroups multiply, one thread of the third fetches act
constexpr int kActStages = 4, kWeightStages = 8;

template <int kColumns>
struct HopperShared {
    uint4 act[kActStages][64 * kColumns * 4];          // [row / 8][group, half of its slots][row % 8], 16 bytes each
    uint4 weight[kWeightStages][2][256];               // a place for each lane's pieces
    uint4 table[2][64 * kColumns * 8];                 // results of a warpgroup, [act row][weight row / 8], swizzled
    uint64_t full[kActStages], empty[kActStages];
};

// scratch[tile][step][row / 8][piece][row % 8] of 16 bytes: piece p holds k = 32 step + 8 q + 2 p + {0, 1}, q = 0..3, so
// pieces 0 and 1 are group one, 2 and 3 group two.  Zeros beyond T and K.
__global__ void pack_act(const uint16_t *__restrict__ act, uint4 *__restrict__ scratch, int T, int K, int steps,
                         int tile_rows, int64_t total) {
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

__device__ inline uint32_t shared_address(const void *p) { return uint32_t(__cvta_generic_to_shared(p)); }

__device__ inline void barrier_init(uint64_t *barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count) : "memory");
}
__device__ inline void barrier_arrive(uint64_t *barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
__device__ inline void barrier_wait(uint64_t *barrier, int parity) {
    asm volatile(
        "{\n.reg .pred done;\n"
        "wait: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra finish;\nbra wait;\nfinish:\n}" ::"r"(shared_address(barrier)),
        "r"(parity)
        : "memory");
}
// One bulk copy whose bytes complete the barrier's phase.
__device__ inline void bulk_copy(void *shared, const void *source, int bytes, uint64_t *barrier) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(shared)),
                 "l"(source), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

// A tile of act for wgmma: no swizzle, 128 bytes between the halves of a group, 512 between blocks of 8 rows.
__device__ inline uint64_t act_descriptor(const uint4 *tile) {
    return uint64_t(shared_address(tile) >> 4) | uint64_t(128 >> 4) << 16 | uint64_t(512 >> 4) << 32;
}

struct Result {
    float v[32];
};

// Starts one group's sums from zero; `r` may be read only after wait_results.
__device__ inline void start_groups(Result &r, const uint32_t (&a)[4], uint64_t act) {
    float *d = r.v;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile(
        "{\n.reg .pred keep;\nsetp.ne.b32 keep, 0, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "{%32, %33, %34, %35}, %36, keep, 1, 1, 0;\n}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
          "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
          "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
          "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(act)
        : "memory");
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most kPending starts are unfinished, then lets `r` be read.
template <int kPending>
__device__ inline void wait_results(Result &r) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
#pragma unroll
    for (int i = 0; i < 32; ++i) asm volatile("" : "+f"(r.v[i])::"memory");
}

__device__ inline void add(Result &sum, const Result &r) {
#pragma unroll
    for (int i = 0; i < 32; ++i) sum.v[i] = __fadd_rn(sum.v[i], r.v[i]);
}

__device__ inline void warpgroup_sync(int warpgroup) {
    asm volatile("bar.sync %0, 128;" ::"r"(warpgroup + 1) : "memory");
}

// Adds the bias, rounds, transposes through shared memory and stores a warpgroup's 64 x 64 kColumns results.
template <int kColumns>
__device__ inline void store_table(const Result (&sums)[kColumns], uint4 *shared, const uint16_t *bias,
                                   uint16_t *table, int t0, int n0, int T, int N) {
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32, row = 16 * warp + lane / 4;
    float b[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) b[half] = n0 + row + 8 * half < N ? bf16_value(bias[n0 + row + 8 * half]) : 0;
    warpgroup_sync(threadIdx.x / 128);
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
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
    for (int i = thread; i < 64 * kColumns * 8; i += 128) {
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
__device__ inline void fetch_act(HopperShared<kColumns> &shared, const uint4 *packed, int steps, int act_tiles,
                                 int tiles) {
    int slot = 0, phase = 0;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const uint4 *source = packed + int64_t(tile % act_tiles) * steps * (64 * kColumns * 4);
        for (int step = 0; step < steps; ++step, source += 64 * kColumns * 4) {
            barrier_wait(&shared.empty[slot], phase ^ 1);
            bulk_copy(shared.act[slot], source, sizeof(shared.act[0]), &shared.full[slot]);
            if (++slot == kActStages) slot = 0, phase ^= 1;
        }
    }
}

template <int kColumns>
__device__ inline void multiply(HopperShared<kColumns> &shared, const uint16_t *weight, const uint16_t *bias,
                                uint16_t *table, int T, int N, int K, int steps, int act_tiles, int tiles) {
    const int warpgroup = threadIdx.x / 128, lane = threadIdx.x % 32, quad = lane % 4;
    const int row = threadIdx.x / 32 * 16 + lane / 4;

    // The weight that is fetched runs kWeightStages - 1 steps ahead of the weight that is used, across tiles.  Rows
    // beyond N, and tiles beyond the last, fetch row N - 1.
    int next_tile = blockIdx.x, next_k = 8 * quad, next_slot = 0;
    const uint16_t *next[2];
    const auto find_rows = [&] {
        const int n = next_tile / act_tiles * kHopperRows + row;
        next[0] = weight + int64_t(min(n, N - 1)) * K + 8 * quad;
        next[1] = weight + int64_t(min(n + 8, N - 1)) * K + 8 * quad;
    };
    const auto fetch = [&] {
#pragma unroll
        for (int half = 0; half < 2; ++half, next[half - 1] += 32)
            copy_async(&shared.weight[next_slot][half][threadIdx.x], next[half], next_k < K);
        commit_copies();
        next_slot = (next_slot + 1) % kWeightStages;
        next_k += 32;
        if (next_k >= 32 * steps) {
            next_k = 8 * quad, next_tile += gridDim.x;
            find_rows();
        }
    };
    find_rows();
#pragma unroll 1
    for (int i = 0; i < kWeightStages - 1; ++i) fetch();

    // A lane's words of one group: half of its piece of both rows.
    const auto load_group = [&](uint32_t (&a)[4], int slot, int group) {
        const uint2 *low = reinterpret_cast<const uint2 *>(&shared.weight[slot][0][threadIdx.x]) + group;
        const uint2 *high = reinterpret_cast<const uint2 *>(&shared.weight[slot][1][threadIdx.x]) + group;
        a[0] = low->x, a[1] = high->x, a[2] = low->y, a[3] = high->y;
    };

    uint32_t one[4], two[4];
    int weight_slot = 0, slot = 0, phase = 0;
    wait_copies<kWeightStages - 2>();
    load_group(one, 0, 0);
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        Result sums[kColumns] = {}, results[2] = {};
        for (int step = 0; step < steps; ++step) {
            barrier_wait(&shared.full[slot], phase);
            const uint64_t act = act_descriptor(shared.act[slot]);
#pragma unroll
            for (int i = 0; i < 2 * kColumns; ++i) {
                const int group = i / kColumns, column = i % kColumns;
                start_groups(results[i % 2], group ? two : one, act + column * (64 * 64 >> 4) + group * (256 >> 4));
                if (i == 0) load_group(two, weight_slot, 1);
                if (i > 0) {
                    wait_results<1>(results[(i - 1) % 2]);
                    add(sums[(i - 1) % kColumns], results[(i - 1) % 2]);
                }
                if (i == kColumns) {
                    weight_slot = (weight_slot + 1) % kWeightStages;
                    fetch();
                    wait_copies<kWeightStages - 2>();
                    load_group(one, weight_slot, 0);
                }
            }
            wait_results<0>(results[1]);
            add(sums[kColumns - 1], results[1]);
            if (lane == 0) barrier_arrive(&shared.empty[slot]);
            if (++slot == kActStages) slot = 0, phase ^= 1;
        }
        store_table<kColumns>(sums, shared.table[warpgroup], bias, table, tile % act_tiles * 64 * kColumns,
                              tile / act_tiles * kHopperRows + 64 * warpgroup, T, N);
    }
}

#endif

template <int kColumns>
__global__ void __launch_bounds__(kHopperThreads, 1)
    forward_hopper(const uint4 *__restrict__ packed, const uint16_t *__restrict__ weight,
                   const uint16_t *__restrict__ bias, uint16_t *__restrict__ table, int T, int N, int K) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(128) char shared_bytes[];
    auto &shared = *reinterpret_cast<HopperShared<kColumns> *>(shared_bytes);
    const int steps = ceil_div(K, 32), act_tiles = ceil_div(T, 64 * kColumns);
    const int tiles = ceil_div(N, kHopperRows) * act_tiles;
    if (threadIdx.x == 0) {
        for (int i = 0; i < kActStages; ++i) barrier_init(&shared.full[i], 1), barrier_init(&shared.empty[i], 8);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x < 256) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        multiply<kColumns>(shared, weight, bias, table, T, N, K, steps, act_tiles, tiles);
    } else {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == 256) fetch_act<kColumns>(shared, packed, steps, act_tiles, tiles);
    }
#endif
}

template <int kColumns>
int launch_hopper(const uint16_t *act, const uint16_t *weight, const uint16_t *bias, uint16_t *table, uint4 *scratch,
                  int T, int N, int K, int multiprocessors, cudaStream_t stream) {
    if (int error = allow_shared(forward_hopper<kColumns>, sizeof(HopperShared<kColumns>))) return error;
    const int steps = ceil_div(K, 32), act_tiles = ceil_div(T, 64 * kColumns);
    const int tiles = ceil_div(N, kHopperRows) * act_tiles;
    const int64_t pieces = int64_t(act_tiles) * steps * (64 * kColumns * 4);
    pack_act<<<unsigned(ceil_div<int64_t>(pieces, 256)), 256, 0, stream>>>(act, scratch, T, K, steps, 64 * kColumns,
                                                                         pieces);
    const int blocks = tiles < multiprocessors ? tiles : multiprocessors;
    forward_hopper<kColumns><<<blocks, kHopperThreads, sizeof(HopperShared<kColumns>), stream>>>(
        scratch, weight, bias, table, T, N, K);
    return cudaGetLastError();
}

}  // namespace
}  // namespace adaln
