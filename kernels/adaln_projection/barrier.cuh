// Barriers in shared memory, which count arrivals (mbarrier, compute capability 8.0 and newer).
#pragma once

#include "common.cuh"

// Hopper and newer sleep while they wait.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define ADALN_IS_PASSED "mbarrier.test_wait"
#else
#define ADALN_IS_PASSED "mbarrier.try_wait"
#endif

namespace adaln {
namespace {

__device__ inline void barrier_init(uint64_t *barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count) : "memory");
}
// Lets others see barriers that were made, also the other blocks of a cluster and copies that run by themselves.
__device__ inline void publish_barriers() {
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
__device__ inline void barrier_arrive(uint64_t *barrier) {
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared::cta.b64 state, [%0];\n}" ::"r"(shared_address(barrier))
                 : "memory");
}
__device__ inline void barrier_wait(uint64_t *barrier, int parity) {
    asm volatile(
        "{\n.reg .pred done;\n"
        "wait: " ADALN_IS_PASSED ".parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra finish;\nbra wait;\nfinish:\n}" ::"r"(shared_address(barrier)),
        "r"(parity)
        : "memory");
}

// Arrives, and says how many bytes are to come before the phase ends.
__device__ inline void barrier_expect(uint64_t *barrier, int bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
#endif
}

// Two buffers in shared memory that all threads of a block fill and read in turn, stage after stage.  Two counting
// barriers each leave the warps up to half a stage apart, where a barrier of the block would keep them together.
struct Buffers {
    uint64_t filled[2], read[2];

    // By one thread, before a barrier of the block.
    __device__ void open(int threads) {
        for (int i = 0; i < 2; ++i) barrier_init(&filled[i], threads), barrier_init(&read[i], threads);
    }
    // Of the buffer of a stage: wait until what was in it before has been read, and say that it is filled.
    __device__ void begin_to_fill(int stage) { barrier_wait(&read[stage % 2], stage / 2 % 2 ^ 1); }
    __device__ void end_to_fill(int stage) { barrier_arrive(&filled[stage % 2]); }
    __device__ void begin_to_read(int stage) { barrier_wait(&filled[stage % 2], stage / 2 % 2); }
    __device__ void end_to_read(int stage) { barrier_arrive(&read[stage % 2]); }
};

}  // namespace
}  // namespace adaln
