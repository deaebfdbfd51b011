// table = act @ weight.T + bias, with the reduction order of CONTRACT.md.
//
// One mma.sync m16n8k16 sums one group of 16 products from a zero accumulator; an ordinary float32 add takes its
// result into the running sum.  `act` is the 16-row operand, the weight the 8-column operand.  Neither needs a
// shuffle: the lane with fragment row r and quad q reads the eight consecutive k (16 bytes) from 8 q of row r;
// their first half is its share of group one, their second half its share of group two.
//
// Many rows on Hopper take forward_hopper.cuh, which gives the same bits.
#include "common.cuh"
#include "forward_hopper.cuh"

namespace adaln {
namespace {

constexpr int kWarps = 4;
constexpr int kSteps = 2;  // steps of 32 k per group of copies

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

// A warp owns 8 * kActTiles rows of act and 8 * kWeightTiles rows of the weight.  It copies the coming kDepth
// groups of two steps of the weight, 128 bytes of each row, to shared memory of its own, so no warp waits for
// another; act is small and read through the first-level cache.
template <int kActTiles, int kWeightTiles, int kDepth>
__global__ void __launch_bounds__(32 * kWarps)
    forward_stream(const uint16_t *__restrict__ act, const uint16_t *__restrict__ weight,
                   const uint16_t *__restrict__ bias, uint16_t *__restrict__ table, int T, int N, int K) {
    __shared__ uint4 rings[kWarps][kDepth][kWeightTiles][8][8];  // [row][piece], pieces of odd rows swapped by halves
    const int act_blocks = ceil_div(T, 8 * kActTiles), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int t0 = blockIdx.x % act_blocks * (8 * kActTiles);
    const int n0 = (blockIdx.x / act_blocks * kWarps + warp) * (8 * kWeightTiles);
    if (n0 >= N) return;
    const int row = lane / 4, quad = lane % 4;
    auto &ring = rings[warp];

    // Rows beyond the end read the last row; their results are not stored.  Columns beyond K are zeros, which add
    // +0 to sums that are never -0 and so change nothing.
    const uint16_t *act_rows[kActTiles], *next[kWeightTiles][2];
#pragma unroll
    for (int i = 0; i < kActTiles; ++i) act_rows[i] = act + int64_t(min(t0 + 8 * i + row, T - 1)) * K;
#pragma unroll
    for (int i = 0; i < kWeightTiles; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half)
            next[i][half] = weight + int64_t(min(n0 + 8 * i + 4 * half + lane / 8, N - 1)) * K + lane % 8 * 8;

    int next_k = lane % 8 * 8, slot = 0;
    const auto fetch = [&] {
#pragma unroll
        for (int i = 0; i < kWeightTiles; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half, next[i][half - 1] += 32 * kSteps)
                copy_async(&ring[slot][i][4 * half + lane / 8][lane % 8 ^ lane / 8 % 2 * 4], next[i][half], next_k < K);
        commit_copies();
        next_k += 32 * kSteps;
        slot = slot == kDepth - 1 ? 0 : slot + 1;
    };
#pragma unroll 1
    for (int i = 0; i < kDepth - 1; ++i) fetch();

    float sums[(kActTiles + 1) / 2][kWeightTiles][4] = {};
    int full = 0;
    for (int k0 = 8 * quad; k0 < K + 8 * quad; k0 += 32 * kSteps) {
        wait_copies<kDepth - 2>();
        __syncwarp();
        uint4 w[kSteps][kWeightTiles];
#pragma unroll
        for (int s = 0; s < kSteps; ++s)
#pragma unroll
            for (int i = 0; i < kWeightTiles; ++i) w[s][i] = ring[full][i][row][(4 * s + quad) ^ row % 2 * 4];
        full = full == kDepth - 1 ? 0 : full + 1;
        fetch();
#pragma unroll
        for (int s = 0; s < kSteps; ++s) {
            const int k = k0 + 32 * s;
#pragma unroll
            for (int j = 0; j < kActTiles; j += 2) {
                uint4 a = make_uint4(0, 0, 0, 0), b = a;
                if (k < K) a = __ldg(reinterpret_cast<const uint4 *>(act_rows[j] + k));
                if (j + 1 < kActTiles && k < K) b = __ldg(reinterpret_cast<const uint4 *>(act_rows[j + 1] + k));
#pragma unroll
                for (int i = 0; i < kWeightTiles; ++i) {
                    add(sums[j / 2][i], group_sum(a.x, b.x, a.y, b.y, w[s][i].x, w[s][i].y));
                    add(sums[j / 2][i], group_sum(a.z, b.z, a.w, b.w, w[s][i].z, w[s][i].w));
                }
            }
        }
    }

#pragma unroll
    for (int i = 0; i < kWeightTiles; ++i)
#pragma unroll
        for (int column = 0; column < 2; ++column) {
            const int n = n0 + 8 * i + 2 * quad + column;
            if (n >= N) continue;
            const float b = bf16_value(bias[n]);
#pragma unroll
            for (int j = 0; j < kActTiles; ++j) {
                const int t = t0 + 8 * j + row;
                if (t >= T) continue;
                const float value = __fadd_rn(sums[j / 2][i][j % 2 * 2 + column], b);
                table[int64_t(t) * N + n] = uint16_t(pack_bf16(value, 0.0f));
            }
        }
}

template <int kActTiles, int kWeightTiles, int kDepth>
int launch_stream(const uint16_t *act, const uint16_t *weight, const uint16_t *bias, uint16_t *table, int T, int N,
                  int K, cudaStream_t stream) {
    const int64_t blocks = int64_t(ceil_div(N, 8 * kWeightTiles * kWarps)) * ceil_div(T, 8 * kActTiles);
    forward_stream<kActTiles, kWeightTiles, kDepth>
        <<<unsigned(blocks), 32 * kWarps, 0, stream>>>(act, weight, bias, table, T, N, K);
    return cudaGetLastError();
}

// From here on a Hopper reuses the weight through wgmma; in units of 64 rows of act per block.
constexpr int64_t kFirstHopperRows = 3;
int hopper_columns(int64_t T) { return T <= 64 ? 1 : T <= 128 ? 2 : 4; }

}  // namespace
}  // namespace adaln

extern "C" int64_t adaln_cuda_forward_scratch_bytes(int64_t T, int64_t N, int64_t K) {
    using namespace adaln;
    if (bad_sizes(T, N, K) || T < kFirstHopperRows) return 0;
    const int64_t rows = 64 * hopper_columns(T);
    return ceil_div(T, rows) * rows * ceil_div<int64_t>(K, kStageK) * kStageK * int64_t(sizeof(uint16_t));
}

extern "C" int adaln_cuda_forward(const void *act_bf16, const void *weight_bf16, const void *bias_bf16,
                                  void *table_bf16, void *scratch, int64_t T, int64_t N, int64_t K,
                                  void *stream_pointer) {
    using namespace adaln;
    if (bad_sizes(T, N, K)) return ADALN_BAD_ARGUMENT;
    const uint16_t *act = static_cast<const uint16_t *>(act_bf16), *weight = static_cast<const uint16_t *>(weight_bf16);
    const uint16_t *bias = static_cast<const uint16_t *>(bias_bf16);
    uint16_t *table = static_cast<uint16_t *>(table_bf16);
    const cudaStream_t stream = static_cast<cudaStream_t>(stream_pointer);
    Device device;
    if (int error = find_device(device)) return error;
    if (T >= kFirstHopperRows && device.major == 9) {
        const auto forward = hopper_columns(T) == 1   ? launch_hopper<1>
                             : hopper_columns(T) == 2 ? launch_hopper<2>
                                                      : launch_hopper<4>;
        return forward(act, weight, bias, table, static_cast<uint4 *>(scratch), int(T), int(N), int(K), device,
                       stream);
    }
    const auto forward = T <= 8    ? launch_stream<1, 1, 6>
                         : T <= 16 ? launch_stream<2, 1, 6>
                         : T <= 32 ? launch_stream<4, 2, 4>
                                   : launch_stream<8, 4, 3>;
    return forward(act, weight, bias, table, int(T), int(N), int(K), stream);
}

extern "C" const char *adaln_cuda_error(int code) {
    if (code == ADALN_BAD_ARGUMENT) return "sizes out of range: T and N must be positive, K a positive multiple of 8";
    if (code == ADALN_TOO_LITTLE_SHARED_MEMORY)
        return "this GPU has too little shared memory per block for the kernel's tiles (compute capability 8.6, 8.9 "
               "and 12.0 have 99 KB); 8.0, 9.0 and 10.0 have enough";
    return cudaGetErrorString(static_cast<cudaError_t>(code));
}
