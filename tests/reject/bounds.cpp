// Mistakes with bounds, enclosures and rounding scopes that must not compile. See
// expect_rejected.py for the form; each case is compiled twice, without its marked lines.
#include <utility>

#include "reference/format/format.h"
#include "reference/real/bound.h"
#include "reference/real/interval.h"
#include "reference/real/wide_interval.h"

using namespace headroom;

// Each line is a case of its own.
// clang-format off

// case: an upper and a lower bound do not add
auto f(Upper<Log2> a, Lower<Log2> b) { return a + b; }  // reject
auto f(Upper<Log2> a, Lower<Log2> b) { return a - b; }  // control

// case: bounds of different units do not add
auto f(Upper<Log2> a, Upper<Absolute> b) { return a + b; }  // reject
auto f(Upper<Log2> a, Upper<Log2> b) { return a + b; }      // control

// case: bounds of different units do not subtract
auto f(Upper<Log2> a, Lower<Absolute> b) { return a - b; }  // reject
auto f(Upper<Log2> a, Lower<Log2> b) { return a - b; }      // control

// case: the difference of two upper bounds bounds nothing
auto f(Upper<Log2> a, Upper<Log2> b) { return a - b; }  // reject
auto f(Upper<Log2> a, Lower<Log2> b) { return a - b; }  // control

// case: the difference of two lower bounds bounds nothing
auto f(Lower<Log2> a, Lower<Log2> b) { return a - b; }  // reject
auto f(Lower<Log2> a, Upper<Log2> b) { return a - b; }  // control

// case: the quotient of two upper bounds bounds nothing
auto f(Upper<Absolute> a, Upper<Absolute> b) { return a / b; }  // reject
auto f(Upper<Absolute> a, Lower<Absolute> b) { return a / b; }  // control

// case: a product of an upper and a lower bound bounds nothing
auto f(Upper<Absolute> a, Lower<Absolute> b) { return a * b; }  // reject
auto f(Upper<Absolute> a, Upper<Absolute> b) { return a * b; }  // control

// case: log2 units do not multiply with log2 units
auto f(Upper<Log2> a, Upper<Log2> b) { return a * b; }      // reject
auto f(Upper<Log2> a, Upper<Relative> b) { return a * b; }  // control

// case: a double is not silently an upper bound
Upper<Absolute> f(double x) { return x; }                   // reject
Upper<Absolute> f(double x) { return Upper<Absolute>(x); }  // control

// case: a double is not silently an argument
void g(Lower<Log2> bound);
void f(double x) { g(x); }               // reject
void f(double x) { g(Lower<Log2>(x)); }  // control

// case: a bound is not silently a double
double f(Upper<Absolute> a) { return a; }          // reject
double f(Upper<Absolute> a) { return a.value(); }  // control

// case: an upper bound is no lower bound
Lower<Absolute> f(Upper<Absolute> a) { return a; }   // reject
Lower<Absolute> f(Upper<Absolute> a) { return -a; }  // control

// case: the tighter of an upper and a lower bound
auto f(Upper<Log2> a, Lower<Log2> b) { return tighter(a, b); }  // reject
auto f(Upper<Log2> a, Upper<Log2> b) { return tighter(a, b); }  // control

// case: a limit must be a lower bound of what is allowed
bool f(Upper<Log2> a, Upper<Log2> b) { return certainly_at_most(a, b); }  // reject
bool f(Upper<Log2> a, Lower<Log2> b) { return certainly_at_most(a, b); }  // control

// case: ulps of one format are not ulps of another
auto f(Upper<Ulps<fp16>> a, Upper<Ulps<bf16>> b) { return a + b; }  // reject
auto f(Upper<Ulps<fp16>> a, Upper<Ulps<fp16>> b) { return a + b; }  // control

// case: bounds have no relational operators
bool f(Upper<Log2> a, Upper<Log2> b) { return a < b; }                  // reject
bool f(Upper<Log2> a, Upper<Log2> b) { return a.value() < b.value(); }  // control

// case: intervals have no operator<
bool f(Interval a, Interval b) { return a < b; }                     // reject
bool f(Interval a, Interval b) { return less(a, b) == Tri::yes; }    // control

// case: intervals have no operator>=
bool f(Interval a, Interval b) { return a >= b; }                          // reject
bool f(Interval a, Interval b) { return less_equal(b, a) == Tri::yes; }    // control

// case: intervals have no operator==
bool f(Interval a, Interval b) { return a == b; }            // reject
bool f(Interval a, Interval b) { return a.lo() == b.lo(); }  // control

// case: an interval is not silently a double
double f(Interval a) { return a; }       // reject
double f(Interval a) { return a.hi(); }  // control

// case: an undecided answer is no condition
int f(Interval a, Interval b) { if (less(a, b)) return 1; return 0; }               // reject
int f(Interval a, Interval b) { if (less(a, b) == Tri::yes) return 1; return 0; }   // control

// case: an undecided answer is not silently a bool
bool f(Tri t) { return t; }              // reject
bool f(Tri t) { return t == Tri::yes; }  // control

// case: wide intervals have no operator<
bool f(const WideInterval& a, const WideInterval& b) { return a < b; }                   // reject
bool f(const WideInterval& a, const WideInterval& b) { return less(a, b) == Tri::yes; }  // control

// case: wide intervals have no operator<=
bool f(const WideInterval& a, const WideInterval& b) { return a <= b; }                        // reject
bool f(const WideInterval& a, const WideInterval& b) { return less_equal(a, b) == Tri::yes; }  // control

// case: wide intervals have no operator==
bool f(const WideInterval& a, const WideInterval& b) { return a == b; }                           // reject
bool f(const WideInterval& a, const WideInterval& b) { return a.precision() == b.precision(); }   // control

// case: a wide interval needs a precision
WideInterval f(double x) { return x; }                     // reject
WideInterval f(double x) { return WideInterval(128, x); }  // control

// case: a bound function is not called outside the guard
double bound(const UpwardRounding& up, double x);
double f(double x) { return bound(x); }                           // reject
double f(double x) { const UpwardRounding up; return bound(up, x); }  // control

// case: rounding to nearest is no proof of rounding upward
double bound(const UpwardRounding& up, double x);
double f(double x) { const NearestRounding scope; return bound(scope, x); }  // reject
double f(double x) { const UpwardRounding scope; return bound(scope, x); }   // control

// case: an arbitrary MXCSR scope is no proof of rounding upward
double bound(const UpwardRounding& up, double x);
double f(double x) { const MxcsrScope scope(mxcsr_upward); return bound(scope, x); }  // reject
double f(double x) { const UpwardRounding scope; return bound(scope, x); }            // control

// case: a rounding scope is not copied
void f() { MxcsrScope a(mxcsr_nearest); MxcsrScope b(a); }              // reject
void f() { MxcsrScope a(mxcsr_nearest); MxcsrScope b(mxcsr_nearest); }  // control

// case: a rounding scope is not moved
void f() { UpwardRounding a; UpwardRounding b(std::move(a)); }  // reject
void f() { UpwardRounding a; UpwardRounding b; }                // control

// case: a rounding scope is not assigned
void f() { UpwardRounding a, b; a = b; }  // reject
void f() { UpwardRounding a, b; }         // control

// case: a number is no MXCSR scope
void g(const MxcsrScope& scope);
void f() { g(mxcsr_upward); }              // reject
void f() { g(MxcsrScope(mxcsr_upward)); }  // control
