// 2^x as a pair of floats, for x = k + r, k a multiple of 1/32 and |r| <= 1/64: table and series.
#pragma once

namespace headroom {

/// 2^(j/32) = head + tail, head to nearest.
inline constexpr float power_head[32] = {
    0x1p+0F,        0x1.059b0ep+0F, 0x1.0b5586p+0F, 0x1.11301ep+0F, 0x1.172b84p+0F, 0x1.1d4874p+0F,
    0x1.2387a6p+0F, 0x1.29e9ep+0F,  0x1.306fep+0F,  0x1.371a74p+0F, 0x1.3dea64p+0F, 0x1.44e086p+0F,
    0x1.4bfdaep+0F, 0x1.5342b6p+0F, 0x1.5ab07ep+0F, 0x1.6247ecp+0F, 0x1.6a09e6p+0F, 0x1.71f75ep+0F,
    0x1.7a1148p+0F, 0x1.82589ap+0F, 0x1.8ace54p+0F, 0x1.93737cp+0F, 0x1.9c4918p+0F, 0x1.a5503cp+0F,
    0x1.ae89fap+0F, 0x1.b7f77p+0F,  0x1.c199bep+0F, 0x1.cb720ep+0F, 0x1.d5818ep+0F, 0x1.dfc974p+0F,
    0x1.ea4afap+0F, 0x1.f50766p+0F};
/// tail - power_error, and (head + tail) ln 2 - RN(head c1).
inline constexpr float power_tail[32] = {
    -0x1p-35F,        -0x1.9d8f52p-25F, 0x1.9ef122p-25F,  -0x1.fdf496p-25F, -0x1.c25742p-27F,
    -0x1.d328cap-25F, 0x1.ce6c48p-25F,  -0x1.5c4424p-25F, 0x1.45f6e2p-25F,  -0x1.18eac6p-25F,
    0x1.820684p-25F,  0x1.7e24b4p-30F,  -0x1.597abcp-25F, -0x1.2c961p-25F,  -0x1.5cd5ecp-27F,
    -0x1.f8f55p-25F,  0x1.9f4ef4p-26F,  0x1.1d4beep-25F,  -0x1.82dfdp-25F,  -0x1.ad4c7cp-26F,
    0x1.14506ep-27F,  -0x1.e68744p-25F, 0x1.50f848p-27F,  -0x1.b87b54p-25F, -0x1.a9cb14p-26F,
    -0x1.a0d438p-25F, -0x1.3e56b2p-27F, -0x1.8937ccp-27F, -0x1.832dbcp-27F, -0x1.90cc94p-25F,
    0x1.51486cp-27F,  -0x1.24eebp-26F};
inline constexpr float power_slope_tail[32] = {
    -0x1.05c61p-29F,  -0x1.5b5306p-26F, 0x1.4c2aa6p-26F,  -0x1.e304fcp-25F, -0x1.7bf838p-26F,
    -0x1.d1f18ap-26F, 0x1.9ac61cp-28F,  -0x1.1cea16p-25F, 0x1.47227cp-25F,  -0x1.144ea8p-26F,
    0x1.9c704ap-25F,  0x1.090a2ep-28F,  -0x1.cfd3fep-28F, -0x1.9a0e9ap-28F, 0x1.ae101ep-29F,
    -0x1.419cc6p-26F, 0x1.37ab9p-25F,   0x1.2c30d6p-24F,  -0x1.4cc8dp-25F,  -0x1.7e2148p-27F,
    0x1.042938p-24F,  -0x1.72c18ep-25F, 0x1.b74bfap-25F,  0x1.0347d6p-28F,  -0x1.5e6256p-25F,
    -0x1.7eb95ep-25F, 0x1.a2522ep-25F,  -0x1.4b79a4p-25F, 0x1.65d5acp-25F,  -0x1.6b37bp-25F,
    0x1.07fff2p-26F,  -0x1.e24722p-26F};

/// 2^r - 1 = c1 r + c2 r^2 + c3 r^3 + c4 r^4 within 2^-43, c1 replaced by ln 2: the terms up to r^4
/// of the series, and r^5 as the Chebyshev polynomial of degree 5 on [-1/64, 1/64] has it in r^3
/// and r.
inline constexpr float power_c1 = 0x1.62e43p-1F;
inline constexpr float power_c2 = 0x1.ebfbep-3F, power_c3 = 0x1.c6b168p-5F;
inline constexpr float power_c4 = 0x1.3b2ab6p-7F;

/// At least the error of 2^r 2^(j/32), absolute, as Lanes512::power computes it, |r| <= 2^-6.
/// Account in units of 2^-40; head is at most 1.958, the polynomial q of c2, c3 and c4 at most
/// 0.242. r^2 rounded, 2^-37, times head and q, 3.8; head r^2 rounded, below 2^-11, times q, 3.9;
/// c2 and q rounded, 2^-26 together, times head r^2, 7.9; what the tail adds to the terms from r^2
/// on, 2^-24 times 2^-12 and q, 3.9; the last two sums, below 2^-13, 4 each; and with twice this
/// bound added, 4. Series 0.2; the linear terms and tables below 0.1. Exact: r, sum - head.
/// Together less than 32. The long test compares every argument.
inline constexpr float power_error = 0x1p-35F;

}  // namespace headroom
