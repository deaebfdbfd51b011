// The contract to the letter: the tensor core's sum in exact integers, for any value.
#ifndef ADALN_PROJECTION_REFERENCE_EXACT_H
#define ADALN_PROJECTION_REFERENCE_EXACT_H

#include <algorithm>

#include "reference.h"

namespace adaln {

// |value| = significand * 2^(exponent - 7) where finite; a subnormal keeps exponent -126 and a short significand.
struct Operand {
    uint32_t significand;
    int exponent;
    bool negative, inf, nan;
};

inline Operand decode(uint16_t bits) {
    const int field = (bits >> 7) & 255, fraction = bits & 127;
    const bool special = field == 255, negative = bits >> 15;
    return {static_cast<uint32_t>(field > 0 ? fraction | 128 : fraction), std::max(field, 1) - 127, negative,
            special && fraction == 0, special && fraction != 0};
}

// |value| = magnitude * 2^(exponent - point), with `point` the number of fraction bits of the magnitude.
struct Term {
    uint64_t magnitude;
    bool negative;
    int exponent, point;
};

// sum * 2^lsb to float32, truncated; a zero is +0; 2^128 and more is an infinity.
inline uint32_t truncate_to_float(int64_t sum, int lsb) {
    if (sum == 0) return 0;
    const uint32_t sign = sum < 0 ? 0x80000000u : 0;
    const auto magnitude = static_cast<uint64_t>(sum < 0 ? -sum : sum);
    const int length = 64 - __builtin_clzll(magnitude);
    const int drop = std::max(length - 24, -149 - lsb);
    const uint64_t kept = drop > 63 ? 0 : drop >= 0 ? magnitude >> drop : magnitude << -drop;
    if (kept == 0) return 0;
    const uint64_t bits = (static_cast<uint64_t>(lsb + drop + 149) << 23) + kept;
    return sign | static_cast<uint32_t>(std::min<uint64_t>(bits, 0x7f800000u));
}

constexpr uint32_t kInfinity = 0x7f800000u, kNan = 0x7fffffffu;

// One fused step over the finite terms, with the specials counted as IEEE 754 has them: align to the largest exponent,
// truncate each term to `fraction` bits below it, add exactly, truncate once.
struct FusedStep {
    Term terms[1 + kGroup];
    int count = 0;
    bool nan = false, above = false, below = false;

    void add_product(const Operand &a, const Operand &w) {
        const bool negative = a.negative != w.negative, inf = a.inf || w.inf;
        const uint32_t magnitude = a.significand * w.significand;
        nan = nan || a.nan || w.nan || (inf && magnitude == 0);
        above = above || (inf && !negative);
        below = below || (inf && negative);
        if (!inf) terms[count++] = {magnitude, negative, a.exponent + w.exponent, 14};
    }

    void add_carry(uint32_t bits) {
        const bool negative = bits >> 31;
        const uint32_t field = (bits >> 23) & 255, magnitude = (bits & 0x7fffffu) | (field > 0 ? 0x800000u : 0);
        nan = nan || bits == kNan;
        above = above || bits == kInfinity;
        below = below || bits == (0x80000000u | kInfinity);
        if (field < 255) terms[count++] = {magnitude, negative, std::max<int>(field, 1) - 127, 23};
    }

    uint32_t result(int fraction, int e_min) const {
        if (nan || (above && below)) return kNan;
        if (above || below) return above ? kInfinity : 0x80000000u | kInfinity;
        int top = e_min;
        for (int i = 0; i < count; ++i)
            if (terms[i].magnitude != 0) top = std::max(top, terms[i].exponent);
        int64_t sum = 0;
        for (int i = 0; i < count; ++i) {
            const Term &term = terms[i];
            const int shift = std::clamp(top - term.exponent, 0, 63);
            const auto aligned = static_cast<int64_t>((term.magnitude << (fraction - term.point)) >> shift);
            sum += term.negative ? -aligned : aligned;
        }
        return truncate_to_float(sum, top - fraction);
    }
};

// mma.m16n8k16 with a zero accumulator: one fused step of 16 products (sm_90), or two chained ones of 8 (sm_80).
inline uint32_t sum_of_16(const Operand *a, const Operand *w, int arch) {
    FusedStep first, second;
    for (int j = 0; j < (arch == 90 ? kGroup : 8); ++j) first.add_product(a[j], w[j]);
    if (arch == 90) return first.result(25, -133);
    second.add_carry(first.result(24, -132));
    for (int j = 8; j < kGroup; ++j) second.add_product(a[j], w[j]);
    return second.result(24, -132);
}

// The float32 sum of row t and column n, without the bias.
inline float exact_row_sum(const Forward &f, int64_t t, int64_t n, int arch) {
    float sum = 0.0f;
    for (int64_t group = 0; group < group_count(f.K); ++group) {
        Operand a[kGroup], w[kGroup];
        for (int j = 0; j < kGroup; ++j) {
            const int64_t k = slot_k(group, j);
            a[j] = decode(k < f.K ? f.act[t * f.K + k] : 0);
            w[j] = decode(k < f.K ? f.weight[n * f.K + k] : 0);
        }
        sum += bit_cast<float>(sum_of_16(a, w, arch));
    }
    return sum;
}

}  // namespace adaln

#endif
