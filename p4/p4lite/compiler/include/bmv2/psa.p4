// The name under which programs for BMv2's psa_switch include the architecture.
#include <psa.p4>
