// Small pieces that the three operations share.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#include "abi.h"

namespace adaln {

constexpr int kChunk = 64;  // n that form one chain of d_act

template <typename Integer>
__host__ __device__ constexpr Integer ceil_div(Integer a, Integer b) {
    return (a + b - 1) / b;
}

// A bf16 is the upper half of a float32; two of them share a 32-bit word, the first in the lower half.
__device__ inline float bf16_low(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ inline float bf16_high(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }
__device__ inline float bf16_value(uint16_t bits) { return __uint_as_float(uint32_t(bits) << 16); }

// Rounds two float32 to bf16 (nearest even; NaN becomes 0x7fff); `low` takes the lower half.
__device__ inline uint32_t pack_bf16(float low, float high) {
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<uint32_t *>(&pair);
}

__device__ inline void unpack_bf16x8(const uint4 &bits, float (&values)[8]) {
    const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        values[2 * i] = bf16_low(words[i]);
        values[2 * i + 1] = bf16_high(words[i]);
    }
}

// Writes eight bf16 as float32.
__device__ inline void store_floats(float *out, const uint4 &bits) {
    float v[8];
    unpack_bf16x8(bits, v);
    reinterpret_cast<float4 *>(out)[0] = make_float4(v[0], v[1], v[2], v[3]);
    reinterpret_cast<float4 *>(out)[1] = make_float4(v[4], v[5], v[6], v[7]);
}

template <int kRows, int kColumns>
__device__ inline void fill(float (&values)[kRows][kColumns], float value) {
#pragma unroll
    for (int t = 0; t < kRows; ++t)
#pragma unroll
        for (int j = 0; j < kColumns; ++j) values[t][j] = value;
}

// Writes rows of eight float32, `stride` apart.
template <int kRows>
__device__ inline void store_rows(float *out, int stride, const float (&values)[kRows][8]) {
#pragma unroll
    for (int t = 0; t < kRows; ++t)
#pragma unroll
        for (int j = 0; j < 8; j += 4)
            *reinterpret_cast<float4 *>(out + t * stride + j) =
                make_float4(values[t][j], values[t][j + 1], values[t][j + 2], values[t][j + 3]);
}

__device__ inline uint32_t shared_address(const void *p) { return uint32_t(__cvta_generic_to_shared(p)); }

// Asynchronous copies of 16 bytes to shared memory; zeros where `present` is false (`source` must be valid anyway).
__device__ inline void copy_async(void *shared, const void *source, bool present) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
                 "l"(source), "r"(present ? 16 : 0)
                 : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ inline void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// What stands in for absent factors of an fma chain, twice: fma(-0, +0, sum) is sum, also where sum is -0 (which an
// underflow leaves behind), while fma(+0, +0, -0) is +0.
constexpr uint32_t kAbsentPair = 0x80008000u;

// Eight bf16 of a row of `size` from `index`, -0 beyond its end.  kAligned: rows start on 16-byte boundaries.
template <bool kAligned>
__device__ inline uint4 load_bf16x8(const uint16_t *row, int index, int size) {
    if (index >= size) return make_uint4(kAbsentPair, kAbsentPair, kAbsentPair, kAbsentPair);
    if constexpr (kAligned) {
        return __ldg(reinterpret_cast<const uint4 *>(row + index));
    } else {
        uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const uint32_t low = index + 2 * i < size ? __ldg(row + index + 2 * i) : 0x8000u;
            const uint32_t high = index + 2 * i + 1 < size ? __ldg(row + index + 2 * i + 1) : 0x8000u;
            words[i] = low | high << 16;
        }
        return make_uint4(words[0], words[1], words[2], words[3]);
    }
}

// Indexes of rows and columns, and counts of tiles, fit in an int; products of two sizes need not.
inline bool bad_sizes(int64_t T, int64_t N, int64_t K) {
    constexpr int64_t most = int64_t(1) << 30, most_elements = int64_t(1) << 40;
    return T < 1 || N < 1 || K < 8 || K % 8 != 0 || T > most || N > most || K > most || T * N > most_elements ||
           N * K > most_elements || T * K > most_elements;
}

struct Device {
    int major, multiprocessors, shared_bytes;  // shared memory that a block can have
};

// Describes the current device; 0 or a cudaError_t.
inline int find_device(Device &device) {
    int id = 0;
    if (int error = cudaGetDevice(&id)) return error;
    if (int error = cudaDeviceGetAttribute(&device.major, cudaDevAttrComputeCapabilityMajor, id)) return error;
    if (int error = cudaDeviceGetAttribute(&device.multiprocessors, cudaDevAttrMultiProcessorCount, id)) return error;
    return cudaDeviceGetAttribute(&device.shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, id);
}

// A kernel may begin before the one ahead of it in the stream has ended, if that one allows it and the launch asks
// for it (Hopper); it must wait before it reads what that one wrote.
__device__ inline void let_next_kernel_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ inline void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Launches a kernel that calls wait_for_previous_kernel; 0 or a cudaError_t.
template <typename... Parameters, typename... Arguments>
int launch_early(void (*kernel)(Parameters...), const Device &device, int64_t blocks, int threads, int shared_bytes,
                 cudaStream_t stream, Arguments... arguments) {
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(unsigned(blocks));
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = device.major >= 9 ? 1 : 0;
    return cudaLaunchKernelEx(&config, kernel, arguments...);
}

// Lets a kernel use `bytes` of dynamic shared memory; 0, a cudaError_t, or ADALN_TOO_LITTLE_SHARED_MEMORY.
template <typename Kernel>
int allow_shared(Kernel kernel, int bytes) {
    Device device;
    if (int error = find_device(device)) return error;
    if (bytes > device.shared_bytes) return ADALN_TOO_LITTLE_SHARED_MEMORY;
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

}  // namespace adaln
