// Clusters of blocks: a block's rank, a barrier, and mail to another's shared memory.
// Before Hopper a cluster is one block.
#pragma once

#include "barrier.cuh"

namespace adaln {
namespace {

__device__ inline int cluster_rank() {
    uint32_t rank = 0;
#if __CUDA_ARCH__ >= 900
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
    return int(rank);
}
__device__ inline void cluster_sync() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// A mailbox is totals in shared memory and a barrier that counts their bytes (barrier_expect).
__device__ inline void wait_for_mail(uint64_t *received, int parity) {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "{\n.reg .pred done;\n"
        "wait: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
        "@done bra finish;\nbra wait;\nfinish:\n}" ::"r"(shared_address(received)),
        "r"(parity)
        : "memory");
#endif
}
__device__ inline void mail(float *total, uint64_t *received, int rank, float value) {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "{\n.reg .b32 to, barrier;\n"
        "mapa.shared::cluster.u32 to, %0, %2;\nmapa.shared::cluster.u32 barrier, %1, %2;\n"
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [to], %3, [barrier];\n}" ::"r"(
            shared_address(total)),
        "r"(shared_address(received)), "r"(rank), "f"(value)
        : "memory");
#endif
}

// Launches `clusters` clusters of at most `most_ranks` blocks, as many as run at once, with the number of blocks as the
// kernel's last argument; 0 or a cudaError_t.
template <typename... Parameters, typename... Arguments>
int launch_clusters(void (*kernel)(Parameters...), const Device &device, int clusters, int most_ranks, int threads,
                    int shared_bytes, cudaStream_t stream, Arguments... arguments) {
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = device.major < 9 ? 0 : 1;
    for (int ranks = device.major < 9 ? 1 : most_ranks;; --ranks) {
        cluster.val.clusterDim.x = ranks;
        config.gridDim = dim3(clusters * ranks);
        int at_once = clusters;
        if (ranks > 1) {
            if (int64_t(clusters) * ranks > device.multiprocessors) continue;
            if (int error = cudaOccupancyMaxActiveClusters(&at_once, kernel, &config)) return error;
        }
        if (at_once >= clusters) return cudaLaunchKernelEx(&config, kernel, arguments..., ranks);
    }
}

}  // namespace
}  // namespace adaln
