// The reference's loops, on vectors of ADALN_LANES floats.  reference.cpp includes this file once per instruction set,
// each time in a namespace of its own: hence no include guard.  No instruction set changes a bit.

typedef float Floats __attribute__((vector_size(4 * ADALN_LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * ADALN_LANES)));
typedef uint32_t Words __attribute__((vector_size(4 * ADALN_LANES)));
typedef uint16_t Halves __attribute__((vector_size(2 * ADALN_LANES)));

constexpr int kLanes = ADALN_LANES;
constexpr int kTile = 2 * kLanes;  // columns of k that one register tile of the backward covers
constexpr int kRows = 6;           // rows of that tile: 12 accumulators hide the latency of an fma

inline Floats fma(float a, Floats b, Floats c) {
    Floats result{};
#pragma GCC unroll 1  // a loop becomes one vector instruction, sixteen statements do not
    for (int i = 0; i < kLanes; ++i) result[i] = __builtin_fmaf(a, b[i], c[i]);
    return result;
}

inline Floats load(const float *from) {
    Floats value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

inline void store(float *to, Floats value) { std::memcpy(to, &value, sizeof value); }

inline Floats canonical_nan(Floats value) { return value == value ? value : (Floats)(Words{} + 0x7fffffffu); }

inline Halves round_to_bf16(Floats value) {
    const Words bits = (Words)value;
    const Words rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return __builtin_convertvector((Words)(value == value ? (Ints)rounded : Ints{} + 0x7fff), Halves);
}

inline Ints exponents_of(Floats value) {
    const Ints magnitude = (Ints)value & 0x7fffffff, field = magnitude >> 23;
    Ints exponent = (field > 1 ? field : Ints{} + 1) - 127;
    exponent = field == 255 ? Ints{} + kSpecialExponent : exponent;
    return magnitude == 0 ? Ints{} + kZeroExponent : exponent;
}

// ---------------------------------------------------------------------------------------------------------- forward

// One fused step of the tensor core in float32, exact while the alignment exponent `top` lies in [kLow, kHigh]: a
// product is then exact, or so small that alignment truncates it to 0; a conversion to int truncates as the alignment
// does; the int32 sum can't overflow (16 * 255^2 * 2^11 < 2^31); both scales are normal.  Lanes where `top` lies
// elsewhere, and not all products are zero, are marked in `outside`: exact_row_sum computes those.
constexpr int32_t kLow = -100, kHigh = 120;

template <int kProducts, int kFraction>
inline Floats fused_step(const float *a, const int32_t *a_exponent, const Floats *w, const Ints *w_exponent,
                         const Floats *carry, Ints &outside) {
    Ints top = carry ? exponents_of(*carry) : Ints{} + 2 * kZeroExponent;
    for (int j = 0; j < kProducts; ++j) {
        const Ints exponent = a_exponent[j] + w_exponent[j];
        top = top > exponent ? top : exponent;
    }
    Ints clamped = top < kLow ? Ints{} + kLow : top;
    clamped = clamped > kHigh ? Ints{} + kHigh : clamped;
    outside |= (top != clamped) & (top > kZeroProduct);

    const Floats up = (Floats)((127 + kFraction - clamped) << 23), down = (Floats)((127 - kFraction + clamped) << 23);
    Words sum = carry ? (Words)__builtin_convertvector(*carry * up, Ints) : Words{};  // a marked lane's may wrap
    for (int j = 0; j < kProducts; ++j) sum += (Words)__builtin_convertvector(a[j] * w[j] * up, Ints);

    const Words negative = (Words)((Ints)sum < 0), magnitude = (sum ^ negative) - negative;
    // Of the bits that float32 has no room for, clear the highest: rounding to nearest then truncates.
    const Floats truncated = __builtin_convertvector((Ints)(magnitude & ~(magnitude >> 24)), Floats) * down;
    return (Floats)((Words)truncated | (negative & 0x80000000u));
}

template <int kArch>
inline Floats sum_of_16(const float *a, const int32_t *ae, const Floats *w, const Ints *we, Ints &outside) {
    if (kArch == 90) return fused_step<16, 25>(a, ae, w, we, nullptr, outside);
    const Floats first = fused_step<8, 24>(a, ae, w, we, nullptr, outside);
    return fused_step<8, 24>(a + 8, ae + 8, w + 8, we + 8, &first, outside);
}

// The 16 weights of one group, for kLanes columns from n0.
inline void decode_weights(const Forward &f, int64_t n0, int64_t group, Floats *value, Ints *exponent) {
    alignas(64) float columns[kGroup][kLanes];
    for (int i = 0; i < kLanes; ++i) {
        const uint16_t *row = f.weight + (n0 + i < f.N ? n0 + i : f.N - 1) * f.K;
        for (int j = 0; j < kGroup; ++j) {
            const int64_t k = slot_k(group, j);
            columns[j][i] = k < f.K ? widen(row[k]) : 0.0f;
        }
    }
    for (int j = 0; j < kGroup; ++j) {
        value[j] = load(columns[j]);
        exponent[j] = exponents_of(value[j]);
    }
}

template <int kArch>
void forward(const Forward &f, int64_t begin, int64_t end) {
    std::vector<float> sums(f.T * kLanes);
    std::vector<int32_t> marks(f.T * kLanes);
    for (int64_t n0 = begin; n0 < end; n0 += kLanes) {
        sums.assign(sums.size(), 0.0f);
        marks.assign(marks.size(), 0);
        for (int64_t group = 0; group < group_count(f.K); ++group) {
            Floats w[kGroup];
            Ints w_exponent[kGroup];
            decode_weights(f, n0, group, w, w_exponent);
            const float *a = f.act_value.data() + group * f.T * kGroup;
            const int32_t *a_exponent = f.act_exponent.data() + group * f.T * kGroup;
            for (int64_t t = 0; t < f.T; ++t, a += kGroup, a_exponent += kGroup) {
                Ints outside;
                std::memcpy(&outside, &marks[t * kLanes], sizeof outside);
                const Floats sum = sum_of_16<kArch>(a, a_exponent, w, w_exponent, outside);
                store(&sums[t * kLanes], load(&sums[t * kLanes]) + sum);
                std::memcpy(&marks[t * kLanes], &outside, sizeof outside);
            }
        }
        for (int64_t t = 0; t < f.T; ++t) {
            for (int64_t n = n0; n < end && n < n0 + kLanes; ++n) {
                const int64_t at = t * kLanes + (n - n0);
                const float sum = marks[at] ? exact_row_sum(f, t, n, kArch) : sums[at];
                f.table[t * f.N + n] = adaln::round_to_bf16(sum + widen(f.bias[n]));
            }
        }
    }
}

// --------------------------------------------------------------------------------------------------------- backward

// kRows x kTile ordered chains: tile[r] = fma(factor[i][r], vector[i], tile[r]) for i ascending from +0.
inline void chains(const float *factor, int64_t factor_stride, const float *vector, int64_t length,
                   Floats (&tile)[kRows][2]) {
    for (int r = 0; r < kRows; ++r) tile[r][0] = tile[r][1] = Floats{};
    for (int64_t i = 0; i < length; ++i, factor += factor_stride, vector += kTile) {
        const Floats low = load(vector), high = load(vector + kLanes);
        for (int r = 0; r < kRows; ++r) {
            tile[r][0] = fma(factor[r], low, tile[r][0]);
            tile[r][1] = fma(factor[r], high, tile[r][1]);
        }
    }
}

// Columns [begin, end) of d_act.  Chunk sums are folded into `total` as they come, in ascending order.
inline void d_act(const DAct &d, int64_t begin, int64_t end) {
    const int64_t rows = (d.T + kRows - 1) / kRows * kRows, width = (end - begin + kTile - 1) / kTile * kTile;
    std::vector<float> factor(kChunk * rows), weights(kChunk * kTile), total(rows * width);
    for (int64_t n0 = 0; n0 < d.N; n0 += kChunk) {
        const int64_t length = d.N - n0 < kChunk ? d.N - n0 : kChunk;
        for (int64_t t = 0; t < d.T; ++t)
            for (int64_t i = 0; i < length; ++i) factor[i * rows + t] = widen(d.grad_table[t * d.N + n0 + i]);
        for (int64_t k0 = begin; k0 < end; k0 += kTile) {
            const int64_t columns = end - k0 < kTile ? end - k0 : kTile;
            for (int64_t i = 0; i < length; ++i)
                for (int64_t k = 0; k < columns; ++k) weights[i * kTile + k] = widen(d.weight[(n0 + i) * d.K + k0 + k]);
            for (int64_t t = 0; t < d.T; t += kRows) {
                Floats tile[kRows][2];
                chains(&factor[t], rows, weights.data(), length, tile);
                for (int r = 0; r < kRows; ++r)
                    for (int half = 0; half < 2; ++half) {
                        float *at = &total[(t + r) * width + (k0 - begin) + half * kLanes];
                        store(at, n0 == 0 ? tile[r][half] : load(at) + tile[r][half]);
                    }
            }
        }
    }
    for (float *at = total.data(); at != total.data() + rows * width; at += kLanes) store(at, canonical_nan(load(at)));
    for (int64_t t = 0; t < d.T; ++t)
        std::memcpy(d.d_act + t * d.K + begin, &total[t * width], (end - begin) * sizeof(float));
}

// Rows [begin, end) of d_weight and elements [begin, end) of d_bias.
inline void d_weight(const DWeight &d, int64_t begin, int64_t end) {
    constexpr int64_t kBlock = 16 * kRows;  // rows that share one pass over act
    std::vector<float> factor(d.T * kBlock), acts(d.T * kTile);
    for (int64_t n0 = begin; n0 < end; n0 += kBlock) {
        const int64_t rows = end - n0 < kBlock ? end - n0 : kBlock;
        float bias[kBlock] = {};
        for (int64_t t = 0; t < d.T; ++t)
            for (int64_t i = 0; i < rows; ++i)
                bias[i] += factor[t * kBlock + i] = widen(d.grad_table[t * d.N + n0 + i]);
        for (int64_t i = 0; i < rows; ++i) d.d_bias[n0 + i] = adaln::round_to_bf16(bias[i]);
        for (int64_t k0 = 0; k0 < d.K; k0 += kTile) {
            const int64_t columns = d.K - k0 < kTile ? d.K - k0 : kTile;
            for (int64_t t = 0; t < d.T; ++t)
                for (int64_t k = 0; k < columns; ++k) acts[t * kTile + k] = widen(d.act[t * d.K + k0 + k]);
            for (int64_t i = 0; i < rows; i += kRows) {
                Floats tile[kRows][2];
                chains(&factor[i], kBlock, acts.data(), d.T, tile);
                for (int64_t r = 0; r < kRows && i + r < rows; ++r) {
                    const Halves rounded[2] = {round_to_bf16(tile[r][0]), round_to_bf16(tile[r][1])};
                    std::memcpy(d.d_weight + (n0 + i + r) * d.K + k0, rounded, columns * sizeof(uint16_t));
                }
            }
        }
    }
}

constexpr Kernels kernels = {kLanes, forward<80>, forward<90>, d_act, d_weight};
