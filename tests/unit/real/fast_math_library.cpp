// A library as a plug-in author might build it: nothing in it touches MXCSR, linking does.
extern "C" int fast_math_library_loaded() { return 1; }
