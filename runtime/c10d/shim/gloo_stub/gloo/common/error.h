// Nothing of this header is named by ProcessGroupGloo.hpp; see context.h.
#pragma once
