// C interface of libadaln_cuda.so: the CUDA side of the AdaLN projection.  The arithmetic is in CONTRACT.md.
//
//     table = act @ weight.T + bias                          act [T, K], weight [N, K], bias [N], table [T, N]
//     d_act, d_weight, d_bias from grad_table [T, N]
//
// All pointers are device pointers to contiguous row-major tensors, 16-byte aligned, of the current device; `stream`
// is a cudaStream_t.  T >= 1, N >= 1, K >= 8 and a multiple of 8; N * K and T * N may exceed 2^31.  Calls only launch
// kernels: nothing is allocated, nothing waits, so every call can be captured in a CUDA graph.  Each returns 0, a
// cudaError_t (> 0), or one of the codes below.
//
// NaN: every float32 NaN that the device's adds, fmas and tensor cores produce is 0x7fffffff, whatever the payload or
// sign of the operand; rounded to bf16 it is 0x7fff.  Infinities and subnormals follow IEEE 754 (nothing is flushed).
#ifndef ADALN_PROJECTION_ABI_H
#define ADALN_PROJECTION_ABI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ADALN_BAD_ARGUMENT (-1)
#define ADALN_TOO_LITTLE_SHARED_MEMORY (-2)
#define ADALN_PUBLIC __attribute__((visibility("default")))

// Bytes of scratch that the forward needs, on any device; a function of the sizes alone, may be 0.
ADALN_PUBLIC int64_t adaln_cuda_forward_scratch_bytes(int64_t T, int64_t N, int64_t K);

// The content of scratch before and after a call means nothing.
ADALN_PUBLIC int adaln_cuda_forward(const void *act_bf16, const void *weight_bf16, const void *bias_bf16,
                                    void *table_bf16, void *scratch, int64_t T, int64_t N, int64_t K, void *stream);

// d_act is float32 [T, K].
ADALN_PUBLIC int adaln_cuda_d_act(const void *grad_table_bf16, const void *weight_bf16, float *d_act, int64_t T,
                                  int64_t N, int64_t K, void *stream);

ADALN_PUBLIC int adaln_cuda_d_weight_bias(const void *grad_table_bf16, const void *act_bf16, void *d_weight_bf16,
                                          void *d_bias_bf16, int64_t T, int64_t N, int64_t K, void *stream);

// A sentence for a code that one of the calls above returned.
ADALN_PUBLIC const char *adaln_cuda_error(int code);

#ifdef __cplusplus
}
#endif

#endif
