// table = act @ weight.T + bias, with the reduction order of CONTRACT.md.
//
// One mma.sync m16n8k16 sums one group of 16 products from a zero accumulator; an ordinary float32 add takes its result
// into the running sum.  The weight is the 16-row operand, so it needs no staging: the lane with fragment row g and
// quad q loads the eight consecutive k (16 bytes) from 8 q of its weight row, whose first half is its share of group
// one and whose second half is its share of group two.  `act` is the 8-column operand and is read the same way.
#include "common.cuh"

namespace adaln {
namespace {

constexpr int kWarps = 8;

struct Float4 {
    float v[4];
};

// One group of 16 products per output, summed by the tensor core from zero.
__device__ inline Float4 group_sum(uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
    Float4 d;
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%10, %10, %10, %10};"
        : "=f"(d.v[0]), "=f"(d.v[1]), "=f"(d.v[2]), "=f"(d.v[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "f"(0.0f));
    return d;
}

__device__ inline void add(float (&sum)[4], const Float4 &group) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] = __fadd_rn(sum[i], group.v[i]);
}

// A warp owns 16 * kWeightTiles rows of the weight and 8 * kActTiles rows of act.
template <int kWeightTiles, int kActTiles, int kSteps>
__global__ void __launch_bounds__(32 * kWarps)
    forward_stream(const uint16_t *__restrict__ act, const uint16_t *__restrict__ weight,
                   const uint16_t *__restrict__ bias, uint16_t *__restrict__ table, int64_t T, int64_t N, int64_t K) {
    const int64_t act_blocks = ceil_div<int64_t>(T, 8 * kActTiles);
    const int64_t t0 = blockIdx.x % act_blocks * (8 * kActTiles);
    const int64_t n0 = (blockIdx.x / act_blocks * kWarps + threadIdx.x / 32) * (16 * kWeightTiles);
    if (n0 >= N) return;
    const int row = threadIdx.x % 32 / 4, quad = threadIdx.x % 4;

    // Rows beyond the end read the last row; their results are not stored.
    const uint16_t *weight_rows[kWeightTiles][2];
    const uint16_t *act_rows[kActTiles];
#pragma unroll
    for (int i = 0; i < kWeightTiles; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half)
            weight_rows[i][half] = weight + min(n0 + 16 * i + 8 * half + row, N - 1) * K;
#pragma unroll
    for (int j = 0; j < kActTiles; ++j) act_rows[j] = act + min(t0 + 8 * j + row, T - 1) * K;

    // Fetches kSteps steps of 32 k; zeros beyond K, which add +0 and so change nothing.
    uint4 next[kSteps][kWeightTiles][2];
    const auto fetch = [&](int64_t k0) {
#pragma unroll
        for (int s = 0; s < kSteps; ++s) {
            const int64_t k = k0 + 32 * s + 8 * quad;
#pragma unroll
            for (int i = 0; i < kWeightTiles; ++i)
#pragma unroll
                for (int half = 0; half < 2; ++half)
                    next[s][i][half] = k < K ? load_once(weight_rows[i][half] + k) : make_uint4(0, 0, 0, 0);
        }
    };

    float sums[kWeightTiles][kActTiles][4] = {};
    fetch(0);
    for (int64_t k0 = 0; k0 < K; k0 += 32 * kSteps) {
        uint4 w[kSteps][kWeightTiles][2];
#pragma unroll
        for (int s = 0; s < kSteps; ++s)
#pragma unroll
            for (int i = 0; i < kWeightTiles; ++i) w[s][i][0] = next[s][i][0], w[s][i][1] = next[s][i][1];
        fetch(k0 + 32 * kSteps);
#pragma unroll
        for (int s = 0; s < kSteps; ++s) {
            const int64_t k = k0 + 32 * s + 8 * quad;
#pragma unroll
            for (int j = 0; j < kActTiles; ++j) {
                const uint4 a = k < K ? __ldg(reinterpret_cast<const uint4 *>(act_rows[j] + k)) : make_uint4(0, 0, 0, 0);
#pragma unroll
                for (int i = 0; i < kWeightTiles; ++i) {
                    const uint4 u = w[s][i][0], v = w[s][i][1];
                    add(sums[i][j], group_sum(u.x, v.x, u.y, v.y, a.x, a.y));
                    add(sums[i][j], group_sum(u.z, v.z, u.w, v.w, a.z, a.w));
                }
            }
        }
    }

#pragma unroll
    for (int i = 0; i < kWeightTiles; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int64_t n = n0 + 16 * i + 8 * half + row;
            if (n >= N) continue;
            const float b = bf16_value(bias[n]);
#pragma unroll
            for (int j = 0; j < kActTiles; ++j)
#pragma unroll
                for (int column = 0; column < 2; ++column) {
                    const int64_t t = t0 + 8 * j + 2 * quad + column;
                    if (t >= T) continue;
                    const float value = __fadd_rn(sums[i][j][2 * half + column], b);
                    table[t * N + n] = __bfloat16_as_ushort(__float2bfloat16_rn(value));
                }
        }
}

template <int kWeightTiles, int kActTiles, int kSteps>
int launch_stream(const void *act, const void *weight, const void *bias, void *table, int64_t T, int64_t N, int64_t K,
                  cudaStream_t stream) {
    const int64_t blocks =
        ceil_div<int64_t>(N, 16 * kWeightTiles * kWarps) * ceil_div<int64_t>(T, 8 * kActTiles);
    forward_stream<kWeightTiles, kActTiles, kSteps><<<unsigned(blocks), 32 * kWarps, 0, stream>>>(
        static_cast<const uint16_t *>(act), static_cast<const uint16_t *>(weight),
        static_cast<const uint16_t *>(bias), static_cast<uint16_t *>(table), T, N, K);
    return cudaGetLastError();
}

}  // namespace
}  // namespace adaln

extern "C" int adaln_cuda_forward(const void *act, const void *weight, const void *bias, void *table, int64_t T,
                                  int64_t N, int64_t K, void *stream) {
    using namespace adaln;
    if (bad_sizes(T, N, K)) return ADALN_BAD_ARGUMENT;
    const cudaStream_t s = static_cast<cudaStream_t>(stream);
    if (T <= 8) return launch_stream<1, 1, 4>(act, weight, bias, table, T, N, K, s);
    if (T <= 16) return launch_stream<1, 2, 4>(act, weight, bias, table, T, N, K, s);
    if (T <= 32) return launch_stream<1, 4, 2>(act, weight, bias, table, T, N, K, s);
    return launch_stream<2, 8, 1>(act, weight, bias, table, T, N, K, s);
}

extern "C" const char *adaln_cuda_error(int code) {
    if (code == ADALN_BAD_ARGUMENT) return "sizes out of range: T and N must be positive, K a positive multiple of 8";
    return cudaGetErrorString(static_cast<cudaError_t>(code));
}
