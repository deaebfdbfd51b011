// Hopper's instructions (sm_90a) as functions: bulk copies, and wgmma.
#pragma once

#include "barrier.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

namespace adaln {
namespace {

// One bulk copy whose bytes complete the barrier's phase.
__device__ inline void bulk_copy(void *shared, const void *source, int bytes, uint64_t *barrier) {
    barrier_expect(barrier, bytes);
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(shared)),
                 "l"(source), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

// The operand in shared memory: no swizzle, 128 bytes between the halves of a group, 512 between blocks of 8 rows.
__device__ inline uint64_t act_descriptor(const uint4 *tile) {
    return uint64_t(shared_address(tile) >> 4) | uint64_t(128 >> 4) << 16 | uint64_t(512 >> 4) << 32;
}

struct Result {
    float v[32];  // of a lane: 64 x 64 sums over 128 threads
};

#define ADALN_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define ADALN_16(d, i) ADALN_4(d, i), ADALN_4(d, i + 4), ADALN_4(d, i + 8), ADALN_4(d, i + 12)

// Starts the sums of one group of products, 64 rows of the weight by 64 of act, from zero; `r` may be read only
// after wait_results.
__device__ inline void start_group(Result &r, const uint32_t (&a)[4], uint64_t act) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile(
        "{\n.reg .pred keep;\nsetp.ne.b32 keep, 0, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "{%32, %33, %34, %35}, %36, keep, 1, 1, 0;\n}"
        : ADALN_16(r.v, 0), ADALN_16(r.v, 16)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(act)
        : "memory");
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
#undef ADALN_4
#undef ADALN_16

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

}  // namespace
}  // namespace adaln

#endif
