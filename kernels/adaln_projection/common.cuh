// Small pieces that the three operations share.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#include "abi.h"

namespace adaln {

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

// Reads 16 bytes that no other block will want soon: not kept in the first-level cache.
__device__ inline uint4 load_once(const void *pointer) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(pointer));
    return v;
}

// Eight bf16 of a row from `index`, zeros from `size` on.  `aligned`: every row starts on a 16-byte boundary.
__device__ inline uint4 load_bf16x8(const uint16_t *row, int64_t index, int64_t size, bool aligned) {
    if (index >= size) return make_uint4(0, 0, 0, 0);
    if (aligned) return __ldg(reinterpret_cast<const uint4 *>(row + index));
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int64_t j = index + 2 * i;
        const uint32_t low = j < size ? __ldg(row + j) : 0;
        const uint32_t high = j + 1 < size ? __ldg(row + j + 1) : 0;
        words[i] = low | high << 16;
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

inline bool bad_sizes(int64_t T, int64_t N, int64_t K) { return T < 1 || N < 1 || K < 8 || K % 8 != 0; }

}  // namespace adaln
