// What the reference's parts share: the problem, the number formats, and the contract's exact sum in integers.
// The arithmetic is described in CONTRACT.md.
#ifndef ADALN_PROJECTION_REFERENCE_H
#define ADALN_PROJECTION_REFERENCE_H

#include <cstdint>
#include <cstring>
#include <vector>

namespace adaln {

constexpr int kGroup = 16;  // products that one tensor core instruction sums
constexpr int kChunk = 64;  // terms of one fma chain of d_act

// Slots of the two instructions of a 32-wide step of K, 'pairs' order; the second instruction's are 4 higher.
constexpr int kSlot[kGroup] = {0, 1, 8, 9, 16, 17, 24, 25, 2, 3, 10, 11, 18, 19, 26, 27};

inline int64_t slot_k(int64_t group, int slot) { return 32 * (group / 2) + 4 * (group % 2) + kSlot[slot]; }
inline int64_t group_count(int64_t K) { return 2 * ((K + 31) / 32); }

template <class To, class From>
inline To bit_cast(From from) {
    static_assert(sizeof(To) == sizeof(From), "a bit cast keeps the size");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

inline float widen(uint16_t bf16) { return bit_cast<float>(static_cast<uint32_t>(bf16) << 16); }

// Round to nearest even; every NaN becomes 0x7fff, as the GPU's conversion has it.
inline uint16_t round_to_bf16(float value) {
    const uint32_t bits = bit_cast<uint32_t>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// Exponent of a float32 pattern as the tensor core aligns by it.  A zero takes no part, and the two marks are so far
// from every real exponent that a sum of two tells a zero product (<= kZeroProduct) from one with an inf or NaN.
constexpr int32_t kZeroExponent = -6000, kZeroProduct = -4000, kSpecialExponent = 12000;

inline int32_t exponent_of(float value) {
    const uint32_t magnitude = bit_cast<uint32_t>(value) & 0x7fffffffu;
    if (magnitude == 0) return kZeroExponent;
    const auto field = static_cast<int32_t>(magnitude >> 23);
    return field == 255 ? kSpecialExponent : (field > 1 ? field : 1) - 127;
}

struct Forward {
    const uint16_t *act, *weight, *bias;
    uint16_t *table;
    int64_t T, N, K;
    std::vector<float> act_value;       // [group][T][16], in slot order, zero where k >= K
    std::vector<int32_t> act_exponent;  // likewise
};

struct DAct {
    const uint16_t *grad_table, *weight;
    float *d_act;
    int64_t T, N, K;
};

struct DWeight {
    const uint16_t *grad_table, *act;
    uint16_t *d_weight, *d_bias;
    int64_t T, N, K;
};

// One instruction set's kernels.  Each computes one range: of n, of n, of columns k, of n.
struct Kernels {
    int lanes;  // ranges of n begin at a multiple of this, ranges of columns at a multiple of twice this
    void (*forward_sm80)(const Forward &, int64_t begin, int64_t end);
    void (*forward_sm90)(const Forward &, int64_t begin, int64_t end);
    void (*d_act)(const DAct &, int64_t begin, int64_t end);
    void (*d_weight)(const DWeight &, int64_t begin, int64_t end);
};

}  // namespace adaln

#endif
