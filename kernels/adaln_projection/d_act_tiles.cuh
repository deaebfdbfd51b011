// d_act for very many rows: a float32 matrix product of 256 x 168 tiles that walks n once, without splitting it.
//
// A thread owns 8 x 14 outputs of a tile.  It keeps the chains of the present chunk in registers and the total of the
// chunks before in shared memory, at places of its own.
#pragma once

#include "barrier.cuh"

namespace adaln {
namespace {
namespace tiles {

constexpr int kRows = 256, kColumns = 168;
constexpr int kThreads = 384;  // 32 of 8 rows x 12 of 14 columns
constexpr int kDepth = 16;     // n per stage

struct Tile {
    float grad[2][kDepth][kRows];
    float weight[2][kDepth][kColumns];
    float4 total[28][kThreads];
    Buffers buffers;
};

template <bool kAligned>
__global__ void __launch_bounds__(kThreads, 1)
    tiled_product(const uint16_t *__restrict__ grad, const uint16_t *__restrict__ weight, float *__restrict__ d_act, int T,
                int N, int K) {
    extern __shared__ __align__(16) char shared_bytes[];
    Tile &shared = *reinterpret_cast<Tile *>(shared_bytes);
    // The last tile of columns ends at K and may repeat columns of the one before: the same bits are stored twice.
    const int column_tiles = ceil_div(K, kColumns);
    const int t0 = blockIdx.x / column_tiles * kRows;
    const int k0 = min(int(blockIdx.x) % column_tiles * kColumns, K - kColumns);
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    // Lanes as 8 rows x 4 columns, warps as 4 x 3.  A thread has two pieces of four rows, 128 apart; of columns, three
    // pieces of four, 48 apart, and one of two.
    const int row = 4 * (warp / 3 * 8 + lane % 8), member = warp % 3 * 4 + lane / 8;

    // The first threads fetch a row of grad each, the last 21 * kDepth eight columns of the weight.
    const bool has_row = thread < kRows;
    const int piece = thread - (kThreads - 21 * kDepth), piece_n = piece / 21, piece_k = piece % 21 * 8;
    const uint16_t *const grad_row = grad + int64_t(min(t0 + thread % kRows, T - 1)) * N;
    const int64_t weight_start = piece_n * int64_t(K) + k0 + piece_k;
    int next_n = 0;
    uint4 grad_bits[kDepth / 8], weight_bits;
    const auto fetch = [&] {
        const uint16_t *const rows = weight + int64_t(next_n) * K;
        if (kAligned && next_n + kDepth <= N) {
            if (has_row)
#pragma unroll
                for (int i = 0; i < kDepth / 8; ++i)
                    grad_bits[i] = __ldg(reinterpret_cast<const uint4 *>(grad_row + next_n) + i);
            if (piece >= 0) weight_bits = __ldg(reinterpret_cast<const uint4 *>(rows + weight_start));
        } else {
#pragma unroll
            for (int i = 0; i < kDepth / 8; ++i) grad_bits[i] = load_bf16x8<kAligned>(grad_row, next_n + 8 * i, N);
            weight_bits = make_uint4(0, 0, 0, 0);
            if (piece >= 0 && next_n + piece_n < N)
                weight_bits = __ldg(reinterpret_cast<const uint4 *>(rows + weight_start));
        }
        next_n += kDepth;
    };
    const auto store = [&](int buffer) {
        if (has_row)
#pragma unroll
            for (int i = 0; i < kDepth / 8; ++i) {
                float v[8];
                unpack_bf16x8(grad_bits[i], v);
#pragma unroll
                for (int n = 0; n < 8; ++n) shared.grad[buffer][8 * i + n][thread] = v[n];
            }
        if (piece >= 0) store_floats(&shared.weight[buffer][piece_n][piece_k], weight_bits);
    };

    float sum[8][14];
    for (int i = 0; i < 28; ++i) shared.total[i][thread] = make_float4(-0.0f, -0.0f, -0.0f, -0.0f);
    if (thread == 0) shared.buffers.open(kThreads);
    __syncthreads();
    fetch();
    store(0);
    shared.buffers.end_to_fill(0);
    fetch();
    int stage = 0;
    for (int chunk = 0; chunk < ceil_div(N, kChunk); ++chunk) {
        fill(sum, 0.0f);
#pragma unroll 1
        for (int i = 0; i < kChunk / kDepth; ++i, ++stage) {
            const int buffer = stage % 2;
            shared.buffers.begin_to_read(stage);
            const float *g = &shared.grad[buffer][0][row], *w = &shared.weight[buffer][0][4 * member],
                        *w_last = &shared.weight[buffer][0][144 + 2 * member];
#pragma unroll
            for (int n = 0; n < kDepth; ++n, g += kRows, w += kColumns, w_last += kColumns) {
                if (n == kDepth / 4) {
                    shared.buffers.begin_to_fill(stage + 1);
                    store(buffer ^ 1);
                    shared.buffers.end_to_fill(stage + 1);
                    fetch();
                }
                float x[8], y[14];
#pragma unroll
                for (int i = 0; i < 2; ++i)
                    *reinterpret_cast<float4 *>(x + 4 * i) = *reinterpret_cast<const float4 *>(g + kRows / 2 * i);
#pragma unroll
                for (int j = 0; j < 3; ++j)
                    *reinterpret_cast<float4 *>(y + 4 * j) = *reinterpret_cast<const float4 *>(w + 48 * j);
                *reinterpret_cast<float2 *>(y + 12) = *reinterpret_cast<const float2 *>(w_last);
#pragma unroll
                for (int i = 0; i < 8; ++i)
#pragma unroll
                    for (int j = 0; j < 14; ++j) sum[i][j] = __fmaf_rn(x[i], y[j], sum[i][j]);
            }
            shared.buffers.end_to_read(stage);
        }
#pragma unroll
        for (int i = 0; i < 28; ++i) {
            const float *s = &sum[0][0] + 4 * i;
            float4 &total = shared.total[i][thread];
            total = make_float4(__fadd_rn(total.x, s[0]), __fadd_rn(total.y, s[1]), __fadd_rn(total.z, s[2]),
                                __fadd_rn(total.w, s[3]));
        }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const int t = t0 + row + i % 4 + i / 4 * (kRows / 2);
        if (t >= T) continue;
        float *const out = d_act + int64_t(t) * K + k0;
#pragma unroll
        for (int j = 0; j < 14; j += 2) {
            const float *v = reinterpret_cast<const float *>(&shared.total[(14 * i + j) / 4][thread]) + (14 * i + j) % 4;
            const int k = j < 12 ? j / 4 * 48 + 4 * member + j % 4 : 144 + 2 * member;
            *reinterpret_cast<float2 *>(out + k) = make_float2(v[0], v[1]);
        }
    }
}

}  // namespace tiles

int launch_tiles(const uint16_t *grad, const uint16_t *weight, float *d_act, int T, int N, int K,
                 cudaStream_t stream) {
    using namespace tiles;
    const auto kernel = N % 8 == 0 ? tiled_product<true> : tiled_product<false>;
    if (int error = allow_shared(kernel, sizeof(Tile))) return error;
    const int blocks = ceil_div(T, kRows) * ceil_div(K, kColumns);
    kernel<<<blocks, kThreads, sizeof(Tile), stream>>>(grad, weight, d_act, T, N, K);
    return cudaGetLastError();
}

}  // namespace
}  // namespace adaln
